package ngrams

import (
	"context"
	"hash/fnv"
	"math"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/aeemesh/aeemesh/agents/embedding"
	"github.com/aeemesh/aeemesh/intents/template"
)

// Embedder is an [embedding.Embedder]. Its zero value is ready for use.
type Embedder struct{}

var _ embedding.Embedder = Embedder{}

// name has a new number whenever the vectors of some text change.
const name = "offline/ngrams-1"

// dimensions is the length of the vectors.
const dimensions = 256

// The weights of what a text consists of. Function words hardly count,
// and numbers little: "2 dogs" and "3 dogs" are one wish.
const (
	wordWeight     = 0.45
	gramWeight     = 1.0
	functionWeight = 0.08
	numberWeight   = 0.3
)

// Name implements [embedding.Embedder].
func (Embedder) Name() string { return name }

// Embed implements [embedding.Embedder].
func (Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out[i] = vectorOf(text)
	}
	return out, embedding.Units(out, len(texts))
}

// maxText bounds the work for one text; what is beyond does not count.
const maxText = 16 << 10

func vectorOf(text string) []float32 {
	if len(text) > maxText {
		text = text[:maxText]
	}
	counts := map[string]float64{}
	for _, w := range template.Words(norm.NFKC.String(strings.ToValidUTF8(text, " "))) {
		weight := 1.0
		switch {
		case w.Function:
			weight = functionWeight
		case isNumber(w.Text):
			weight = numberWeight
		}
		counts["w "+w.Text] += weight * wordWeight
		if weight < 1 {
			continue
		}
		runes := []rune("^" + w.Text + "$")
		for n := 3; n <= 5; n++ {
			for i := 0; i+n <= len(runes); i++ {
				counts["g "+string(runes[i:i+n])] += gramWeight / math.Sqrt(float64(len(runes)))
			}
		}
	}
	if len(counts) == 0 { // no words: the text itself stands for them
		counts["t "+text] = 1
	}
	v := make([]float32, dimensions)
	sums := make([]float64, dimensions)
	for part, weight := range counts {
		h := fnv.New64a()
		_, _ = h.Write([]byte(part)) // it never fails
		sum := h.Sum64()
		sum ^= sum >> 29
		sum *= 0xbf58476d1ce4e5b9
		sum ^= sum >> 32
		at := sum % dimensions
		// Integers add up to the same in any order, which floats do not.
		units := math.Round(weight * 1e6)
		if sum>>40&1 == 1 {
			units = -units
		}
		sums[at] += units
	}
	empty := true
	for i, x := range sums {
		v[i] = float32(x / 1e6)
		empty = empty && x == 0
	}
	if empty { // all parts cancel each other out
		v[0] = 1
	}
	return v
}

func isNumber(word string) bool { return strings.Trim(word, "0123456789") == "" }

package embedding

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// An Embedder turns texts into vectors. Many goroutines may use one at once.
type Embedder interface {
	// Embed returns one vector of unit length for each text, all of one dimension. A text
	// without words has a vector, too.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Name identifies the model and its version, as in "openai/text-embedding-3-small".
	Name() string
}

// ErrBadVectors is wrapped by the error about vectors that no embedder may return.
var ErrBadVectors = errors.New("the embedder returned vectors that cannot be used")

// Units brings vectors to unit length, in place. It refuses another number of vectors than
// of texts, different dimensions, and vectors without a direction.
func Units(vectors [][]float32, texts int) error {
	if len(vectors) != texts {
		return fmt.Errorf("%w: %d for %d texts", ErrBadVectors, len(vectors), texts)
	}
	for _, v := range vectors {
		if len(v) == 0 || len(v) != len(vectors[0]) {
			return fmt.Errorf("%w: they have %d and %d dimensions", ErrBadVectors, len(v), len(vectors[0]))
		}
		sum := 0.0
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		if !(sum > 0) || math.IsInf(sum, 0) {
			return fmt.Errorf("%w: the length of a vector is zero or not finite", ErrBadVectors)
		}
		length := math.Sqrt(sum)
		for i, x := range v {
			v[i] = float32(float64(x) / length)
		}
	}
	return nil
}

// Sendable returns texts that a service takes: valid UTF-8, of at most so many bytes, and
// not empty.
func Sendable(texts []string, most int) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		if out[i] = clip.Text(strings.ToValidUTF8(t, " "), most); strings.TrimSpace(t) == "" {
			out[i] = "-"
		}
	}
	return out
}

// Cosine returns the similarity of two vectors of unit length, between -1 and 1; 0 if they
// have different dimensions.
func Cosine(a, b []float32) float64 {
	if len(a) != len(b) {
		return 0
	}
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

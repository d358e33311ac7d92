package ngrams_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/aeemesh/aeemesh/agents/embedding"
	"github.com/aeemesh/aeemesh/agents/embedding/embeddingtest"
	"github.com/aeemesh/aeemesh/agents/embedding/ngrams"
)

func TestEmbedderConforms(t *testing.T) {
	t.Parallel()
	embeddingtest.Run(t, ngrams.Embedder{}, 1)
}

func TestTextsAreFoundAlike(t *testing.T) {
	t.Parallel()
	for _, group := range [][]string{
		{"window seat", "a window seat", "window seat please", "the window seat", "I want a window seat", "Window Seat!", "please give me the window seat"},
		{"vegetarian meal", "a vegetarian meal please"},
		{"ein Fensterplatz", "bitte einen Fensterplatz", "Fensterplatz"},
		{"靠窗座位", "靠窗座位。"},
		{"2 bicycles", "3 bicycles"},
	} {
		for _, text := range group[1:] {
			if got := similarity(t, group[0], text); got < 0.85 {
				t.Errorf("%q, %q: %.3f", group[0], text, got)
			}
		}
	}
	for _, pair := range [][2]string{
		{"window seat", "vegetarian meal"}, {"window seat", "wheelchair help"}, {"Fensterplatz", "Rollstuhl"}, {"window seat", "aisle seat"}, {"靠窗座位", "素食餐"}, {"a dog", "a cat"}, {"please", "window"},
	} {
		if got := similarity(t, pair[0], pair[1]); got > 0.7 {
			t.Errorf("%q: %.3f", pair, got)
		}
	}
}

func similarity(t *testing.T, a, b string) float64 {
	t.Helper()
	v, err := ngrams.Embedder{}.Embed(t.Context(), []string{a, b})
	if err != nil {
		t.Fatal(err)
	}
	return embedding.Cosine(v[0], v[1])
}

// A stored vector is compared with those of later releases: a change of the vectors needs
// another name.
func TestTheVectorsStay(t *testing.T) {
	t.Parallel()
	e := ngrams.Embedder{}
	v, err := e.Embed(t.Context(), []string{"a window seat please", "Größe 42", "靠窗", ""})
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, one := range v {
		for _, x := range one {
			_ = binary.Write(h, binary.BigEndian, int32(math.Round(float64(x)*1e4)))
		}
	}
	if got, want := fmt.Sprintf("%s %x", e.Name(), h.Sum(nil)[:8]), "offline/ngrams-1 8ee98e657d127d5e"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func BenchmarkEmbed(b *testing.B) {
	e := ngrams.Embedder{}
	for b.Loop() {
		_, _ = e.Embed(b.Context(), []string{"a window seat near the front, please"})
	}
}

func FuzzEmbed(f *testing.F) {
	f.Add("a window seat")
	f.Add("\xff\u0301")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ngrams.Embedder{}.Embed(t.Context(), []string{text, text})
		if err != nil || math.Abs(embedding.Cosine(v[0], v[1])-1) > 1e-3 {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

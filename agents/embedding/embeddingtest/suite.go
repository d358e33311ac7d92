package embeddingtest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents/embedding"
)

// Run holds an embedder to the port's promises. same is how similar the vectors of one text
// must be in two calls: 1 for what is deterministic.
func Run(t *testing.T, e embedding.Embedder, same float64) {
	ctx := t.Context()
	embed := func(t *testing.T, texts ...string) [][]float32 {
		t.Helper()
		out, err := e.Embed(ctx, texts)
		if err != nil {
			t.Fatal(err)
		}
		if len(out) != len(texts) {
			t.Fatalf("%d vectors for %d texts", len(out), len(texts))
		}
		return out
	}
	t.Run("name", func(t *testing.T) {
		if !strings.Contains(e.Name(), "/") || strings.ContainsAny(e.Name(), " \n") {
			t.Errorf("%q is no PROVIDER/MODEL", e.Name())
		}
	})
	t.Run("unit length", func(t *testing.T) {
		texts := []string{"a window seat", "", " ", "!?", "靠窗座位", "\xff\x00", strings.Repeat("long ", 2000), "€"}
		for i, v := range embed(t, texts...) {
			if n := math.Sqrt(embedding.Cosine(v, v)); math.Abs(n-1) > 1e-3 || len(v) != len(embed(t, "x")[0]) {
				t.Errorf("%.20q: length %v, %d dimensions", texts[i], n, len(v))
			}
		}
	})
	t.Run("order and batches", func(t *testing.T) {
		var texts []string
		for i := range 300 {
			texts = append(texts, fmt.Sprintf("wish number %d of a long list", i*i))
		}
		all := embed(t, texts...)
		for _, i := range []int{0, 1, 150, 299} {
			if got := embedding.Cosine(all[i], embed(t, texts[i])[0]); got < same-1e-5 {
				t.Errorf("text %d: similarity %v with itself", i, got)
			}
		}
	})
	t.Run("no texts", func(t *testing.T) { embed(t) })
	t.Run("meaning", func(t *testing.T) {
		v := embed(t, "window seat", "a window seat please", "vegetarian meal")
		if near, far := embedding.Cosine(v[0], v[1]), embedding.Cosine(v[0], v[2]); near <= far {
			t.Errorf("near %v, far %v", near, far)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := e.Embed(ctx, []string{"x"}); err == nil {
			t.Error("no error")
		}
	})
	t.Run("at once", func(t *testing.T) {
		want := embed(t, "a window seat")[0]
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				got, err := e.Embed(ctx, []string{"a window seat"})
				if err != nil || embedding.Cosine(got[0], want) < same-1e-5 {
					t.Errorf("%v", err)
				}
			})
		}
		wait.Wait()
	})
}

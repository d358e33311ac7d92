package buckets_test

import (
	"slices"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/buckets"
)

func TestBoundsRise(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bounds      []float64
		first, last float64
	}{
		"Durations":  {buckets.Durations(), 0.001, 600},
		"Writes":     {buckets.Writes(), 0.0005, 10},
		"Sizes":      {buckets.Sizes(), 1 << 10, 64 << 20},
		"ModelCalls": {buckets.ModelCalls(), 0.01, 81.92},
		"Tokens":     {buckets.Tokens(), 1, 1 << 26},
	} {
		b := c.bounds
		if !slices.IsSorted(b) || len(slices.Compact(slices.Clone(b))) != len(b) || b[0] != c.first || b[len(b)-1] != c.last {
			t.Errorf("%s: %v is not from %g to %g in rising order", name, b, c.first, c.last)
		}
	}
}

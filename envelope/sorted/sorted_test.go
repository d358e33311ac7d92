package sorted_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

type pair struct{ first, second int }

func TestBy(t *testing.T) {
	t.Parallel()
	var a []pair
	for i := range 200 {
		a = append(a, pair{i * 7919 % 13, i})
	}
	b := slices.Clone(a)
	byFirst := func(x, y pair) int { return cmp.Compare(x.first, y.first) }
	sorted.By(a, byFirst)
	slices.SortStableFunc(b, byFirst)
	if !slices.Equal(a, b) {
		t.Errorf("%v\nwant %v", a, b)
	}
	sorted.By[pair](nil, byFirst)
}

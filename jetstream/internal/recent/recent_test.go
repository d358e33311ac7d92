package recent

import (
	"strconv"
	"testing"
)

// The last ones are remembered, and no others, however many there were.
func TestTheLastIDsAreRemembered(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, few - 1, few, few + 1, Max, Max + 1, 3*Max - 1} {
		var r IDs
		r.Add("")
		for i := range n {
			r.Add(strconv.Itoa(i))
		}
		for i := range n {
			if got, want := r.Has(strconv.Itoa(i)), i >= n-Max; got != want {
				t.Fatalf("%d of %d is remembered: %v", i, n, got)
			}
		}
		if r.Has("") || r.Has(strconv.Itoa(n)) {
			t.Errorf("of %d, one that was not added is remembered", n)
		}
	}
}

package statetest

import (
	"strconv"
	"testing"

	"github.com/aeemesh/aeemesh/state"
)

func testInterrupt(t *testing.T, s state.Store) {
	broken, ok := s.(Interrupter)
	if !ok {
		t.Skip("the store has no connection to cut")
	}
	prev := put(t, s, id("r"), 0, "0")
	for i := range 3 {
		broken.Interrupt()
		prev = putAgain(t, s, id("r"), prev, strconv.Itoa(i+1))
		if r := get(t, s, id("r")); string(r.Data) != strconv.Itoa(i+1) || r.Revision != prev {
			t.Errorf("after an interruption there is %q at revision %d, want %d at %d", r.Data, r.Revision, i+1, prev)
		}
	}
}

// putAgain writes until it is known that the data are stored, as users of the interface
// do.
func putAgain(t *testing.T, s state.Store, id state.ID, prev uint64, data string) uint64 {
	t.Helper()
	ctx := background(t)
	for ctx.Err() == nil {
		rev, err := s.Put(ctx, id, prev, []byte(data))
		if err == nil {
			return rev
		}
		if r, err := s.Get(ctx, id); err == nil && r.Revision != prev {
			if string(r.Data) != data {
				t.Fatalf("there is %q, which nobody has written over revision %d", r.Data, prev)
			}
			return r.Revision
		}
	}
	t.Fatalf("no write went through in %v", patience)
	return 0
}

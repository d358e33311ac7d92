package runs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/state"
)

// forgetful is a store without histories.
type forgetful struct{ *state.Mem }

func (forgetful) History(context.Context, state.ID) ([]state.Record, error) {
	return nil, errors.New("no history")
}

func TestEachChange(t *testing.T) {
	t.Parallel()
	errEnough := errors.New("enough")
	for name, histories := range map[string]bool{"with histories": true, "without histories": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limited, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				mem, id := new(state.Mem), state.ID{Entity: "agent.x", Run: "r"}
				runs := &Store{Store: mem}
				if !histories {
					runs.Store = forgetful{mem}
				}
				put := func(prev uint64, data string) uint64 {
					rev, err := mem.Put(t.Context(), id, prev, []byte(data))
					if err != nil {
						t.Fatal(err)
					}
					return rev
				}
				rev := put(0, "1")
				rev = put(rev, "2")
				var seen []string
				see := func(then func() error) func([]state.Record) error {
					return func(history []state.Record) error {
						all := ""
						for _, r := range history {
							all += string(r.Data)
						}
						seen = append(seen, all)
						return then()
					}
				}
				more := func() error {
					if rev != 2 {
						return errEnough
					}
					rev = put(rev, "3")
					return nil
				}
				if err := runs.eachChange(limited, id, see(more)); err != errEnough {
					t.Errorf("it ended with %v", err)
				}
				want := "12 123"
				if !histories {
					want = "2 3"
				}
				if got := strings.Join(seen, " "); got != want {
					t.Errorf("shown are %s, want %s", got, want)
				}
				cause := errors.New("the cause")
				ctx, stop := context.WithCancelCause(limited)
				if err := runs.eachChange(ctx, id, see(func() error { stop(cause); return nil })); err != cause {
					t.Errorf("after its context, it ended with %v", err)
				}
				err := runs.eachChange(limited, id, see(func() error { return mem.Delete(t.Context(), id) }))
				if err == nil || err.Error() != "the run was deleted" {
					t.Errorf("after the deletion, it ended with %v", err)
				}
			})
		})
	}
}

package calls

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/mesh/internal/sender"
)

// Each task of a chain has less time than the one that calls it, so that each caller is still
// there when its call has timed out.
func TestACallEndsBeforeTheTaskThatMakesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, left := range []time.Duration{20 * time.Millisecond, 1500 * time.Millisecond, 10 * time.Second, time.Hour} {
			deadline := now.Add(left)
			for range 3 {
				o := &outgoing{Task: &Task{Deadline: deadline}, c: &Call{}}
				timeout, until := o.times(t.Context(), now)
				if ends := now.Add(timeout); timeout <= 0 || !ends.Before(until) || !until.Before(deadline) {
					t.Errorf("of %v: the call ends after %v, its caller waits for %v", deadline.Sub(now), timeout, until.Sub(now))
				} else {
					deadline = ends
				}
			}
		}
		// A timeout of its own counts from the call's beginning.
		o := &outgoing{Task: &Task{Deadline: now.Add(time.Minute)}, c: &Call{Timeout: 3 * time.Second}}
		time.Sleep(2 * time.Second)
		if timeout, until := o.times(t.Context(), now); timeout != time.Second || time.Until(until) != time.Second+sender.Grace/2 {
			t.Errorf("%v and %v are left", timeout, time.Until(until))
		}
	})
}

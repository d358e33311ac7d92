package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// errCalleeWaits ends the waiting for a call whose callee itself waits for
// somebody, maybe for days.
var errCalleeWaits = errors.New("the run of the call waits for an answer")

// calleeLooks are the pauses between two looks at the run of a call, in leases:
// the first, and the longest.
const (
	calleeFirstLook = 2
	calleeLastLook  = 20
)

// unlessItWaits is ctx, but ends with errCalleeWaits when the run of the task
// that was sent is found to wait for somebody: then the caller's need not keep
// its place either.
func (t *Task) unlessItWaits(ctx context.Context, task *envelope.Envelope) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := t.run.lane
	id := state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lease := l.queue.Lease()
		for pause := calleeFirstLook * lease; sleep(ctx, pause) == nil; pause = min(2*pause, calleeLastLook*lease) {
			looking, stop := context.WithTimeout(ctx, storeTimeout)
			rec, err := l.cfg.States.Get(looking, id)
			stop()
			if err != nil {
				continue
			}
			if h, err := rec.Header(); err == nil && h.Status == aaif.RunAwaitingApproval {
				cancel(errCalleeWaits)
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-done
	}
}

// waitsForCallee is the error of a call whose callee waits: the run goes on when that
// has answered, or when its time is over.
func (t *Task) waitsForCallee(c *Call, task *envelope.Envelope, a *Answer, until time.Time) error {
	clock := t.run.lane.clock
	return &WaitsError{state.Wait{Entity: task.To, TaskID: task.ID, Key: c.Key, Asked: a.Began, Until: clock.now().Add(time.Until(until)).Round(time.Millisecond)}}
}

package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// errCalleeWaits: the called run is parked until an answer comes, perhaps for days, so the
// caller need not wait in a place.
var errCalleeWaits = errors.New("the called run is parked until an answer comes")

// The pause between two checks of the called run, in leases: calleeFirstLook is the first,
// calleeLastLook the longest.
const (
	calleeFirstLook = 2
	calleeLastLook  = 20
)

// untilCalleeParks returns a context that ends with errCalleeWaits when the called run is found
// parked waiting for an answer. Then the caller's run can be parked, too.
func (o *outgoing) untilCalleeParks(ctx context.Context, task *envelope.Envelope) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := o.run.lane
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

// waitsForCallee returns the [PendingError] for a parked called run. The caller's run wakes when
// the called run has answered or the call's timeout is over.
func (o *outgoing) waitsForCallee(task *envelope.Envelope, until time.Time) error {
	clock := o.run.lane.clock
	return &PendingError{state.Wait{Entity: task.To, TaskID: task.ID, Key: o.c.Key, Asked: o.a.Began, Until: clock.now().Add(time.Until(until)).Round(time.Millisecond)}}
}

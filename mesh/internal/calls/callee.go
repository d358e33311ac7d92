package calls

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
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

// watchCallee ends the wait for a call with errCalleeWaits when it finds the called run parked as
// awaiting_approval, because that run waits for an answer, a person or a time. Then the caller's
// run can be parked, too. If the called run was delegated, the receiver's run counts. It checks
// until ctx ends or the returned function is called.
func (o *outgoing) watchCallee(ctx context.Context, end context.CancelCauseFunc, task *envelope.Envelope) (release func()) {
	lease := o.Run.Lease
	done := make(chan struct{})
	first := time.AfterFunc(calleeFirstLook*lease, func() { // most calls have ended before
		defer close(done)
		id := state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)}
		for wait := 2 * calleeFirstLook * lease; ctx.Err() == nil; wait = min(2*wait, calleeLastLook*lease) {
			waits, delegated := o.lookAt(ctx, id)
			switch {
			case waits:
				end(errCalleeWaits)
				return
			case delegated != nil:
				id, wait = state.ID{Entity: delegated.To, Run: state.RunID(delegated.To, delegated.TaskID)}, lease
			}
			if !pause.For(ctx, wait) {
				return
			}
		}
	})
	return func() {
		end(context.Canceled)
		if !first.Stop() {
			<-done
		}
	}
}

// lookAt reports whether a run is parked as awaiting_approval, and to which task it was delegated, if it
// was and its record can be read here.
func (o *outgoing) lookAt(ctx context.Context, id state.ID) (waits bool, to *state.Handed) {
	ctx, stop := context.WithTimeout(ctx, sched.StoreTimeout)
	defer stop()
	rec, err := o.Stores.States.Get(ctx, id)
	if err != nil {
		return false, nil
	}
	h, err := rec.Header()
	if err != nil || h.Step != state.StepHandoff || !state.Terminal(h.Status) {
		return err == nil && h.Status == aaif.RunAwaitingApproval, nil
	}
	codec := o.Stores.Codec
	codec.AcceptClear = true // see sentBefore
	c, err := codec.Read(rec)
	if err != nil {
		return false, nil
	}
	return false, c.Mesh.Handed
}

// waitsForCallee returns the [PendingError] for a parked called run. The caller's run wakes when
// the called run has answered or the call's timeout is over.
func (o *outgoing) waitsForCallee(task *envelope.Envelope, until time.Time) error {
	return &PendingError{state.Wait{Entity: task.To, TaskID: task.ID, Key: o.c.Key, Asked: o.a.Began, Until: o.Now().Add(time.Until(until)).Round(time.Millisecond)}}
}

package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// ParkUntil is [Run.Park] for a run that waits for others. It is stored as
// awaiting_approval, with an approval request that names the entities and the latest
// time (AAIF, Agent State Document). It takes no worker's place until it wakes; then
// its handler begins anew, on any worker.
//
// People whom the run has asked, and who are not in wake, are told that their task is
// void. A pending request to pause or to transfer the run is kept until it wakes.
func (r *Run) ParkUntil(ctx context.Context, wake Wake, change func(*state.Checkpoint) error) error {
	if len(wake.On) == 0 && wake.At.IsZero() {
		return fmt.Errorf("park run %s: nothing would wake it", r.id.Run)
	}
	if len(wake.On) > maxWaits {
		return fmt.Errorf("park run %s: it would wait for %d answers, at most %d", r.id.Run, len(wake.On), maxWaits)
	}
	var void []state.Wait
	err := r.commit(ctx, state.Step{Kind: state.StepPause, Detail: waitsFor(wake)}, aaif.RunAwaitingApproval, func(c *state.Checkpoint) error {
		if change != nil {
			if err := change(c); err != nil {
				return err
			}
		}
		void = nil
		waits, now := slices.Clone(wake.On), r.lane.clock.now()
		for _, w := range c.Mesh.Waits {
			switch {
			case slices.ContainsFunc(wake.On, func(o state.Wait) bool { return o.TaskID == w.TaskID }):
			case w.Answered: // if the handler calls again, it gets the same answer
			case w.Void || run.Expired(w, now): // recorded, so that a late answer is not accepted later
				w.Void = true
				waits = append(waits, w)
			default:
				void = append(void, w)
			}
		}
		for i := range waits {
			waits[i].Later = false
		}
		c.Mesh.Waits, c.Mesh.WakeAt = waits, wake.At
		run.Stay(c, now)
		c.Doc.ApprovalRequest = waitRequest(c, wake)
		return nil
	})
	if errors.Is(err, ErrParked) {
		r.lane.work.Go(func() {
			for _, w := range void {
				r.lane.host.calls.Withdraw(r.lane.ctx, r.task.Envelope, w, "the run goes on without it")
			}
		})
	}
	return err
}

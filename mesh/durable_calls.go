package mesh

import (
	"context"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/internal/calls"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

func (r taskRun) caller() *calls.Run {
	return &calls.Run{Port: callRun{r.Run}, ID: r.id.Run, Deadline: r.deadline, Restored: r.restored, Lease: r.lane.queue.Lease(), Record: &r.calls}
}

// callRun is a run as [calls.RunPort].
type callRun struct{ *Run }

func (r callRun) Checkpoint() *state.Checkpoint { return r.cp.Load() }

func (r callRun) Change(change func(*state.Checkpoint) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return r.end
	}
	err := r.write(r.task.context(), func(c *state.Checkpoint) error {
		if err := r.applyStaged(c); err != nil {
			return err
		}
		return change(c)
	})
	if err == nil {
		r.staged = nil
	}
	return err
}

// OnStop does not call f for a run that is to move to another platform: the called agent stays
// in this mesh, and the new platform would have to send the call again.
func (r callRun) OnStop(f func()) (release func()) {
	undrained := context.AfterFunc(r.lane.undrained, f)
	unasked := r.onStopRequest(func() {
		if c := r.cp.Load(); c == nil || !run.Leaving(c) {
			f()
		}
	})
	return func() {
		undrained()
		unasked()
	}
}

func (r callRun) Go(f func()) { r.lane.work.Go(f) }

// withdrawAll withdraws the unanswered tasks of a run that has ended from the people
// who have them.
func (rw *replyWriter) withdrawAll(r *Run, c *state.Checkpoint) {
	if len(c.Mesh.Waits) == 0 {
		return
	}
	why := "the run has ended"
	if e := c.Doc.Error; e != nil {
		why += ": " + clip.Text(e.Message, 128)
	}
	waits, task := c.Mesh.Waits, r.task.Envelope
	rw.work.Go(func() {
		for _, w := range waits {
			rw.host.calls.Withdraw(rw.ctx, task, w, why)
		}
	})
}

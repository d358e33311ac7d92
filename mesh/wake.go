package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// ErrAnswerPending is wrapped by the error of a call that was made and whose answer may take
// days: see [PendingError].
var ErrAnswerPending = errors.New("the answer may be long in coming")

// A PendingError says that a task of the run has not been answered. A durable run does
// not occupy a worker while it waits: its handler does its other work, then parks with
// [Run.ParkUntil], and makes the same call again when it is started again after the wake.
type PendingError struct{ Wait state.Wait }

// Error names the entity that has the task.
func (e *PendingError) Error() string {
	return fmt.Sprintf("task %s is with %s: %v", clip.Text(e.Wait.TaskID, 128), clip.Text(e.Wait.Entity, 128), ErrAnswerPending)
}

// Unwrap returns [ErrAnswerPending].
func (e *PendingError) Unwrap() error { return ErrAnswerPending }

// A Wake says when a parked run goes on: at the first answer to one of its tasks, when
// the time for one of those answers is over, at At, and at the run's own deadline,
// which ends it. All times are by the server's clock.
type Wake struct {
	On []state.Wait
	At time.Time // zero: no set time
}

// maxWaits bounds the tasks whose answers one run may wait for.
const maxWaits = 1024

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
			case w.Void || run.Expired(w, now): // recorded, so that a late answer is not accepted later
				w.Void = true
				waits = append(waits, w)
			default:
				void = append(void, w)
			}
		}
		c.Mesh.Waits, c.Mesh.WakeAt = waits, wake.At
		run.Stay(c, now)
		c.Doc.ApprovalRequest = waitRequest(c, wake)
		return nil
	})
	if errors.Is(err, ErrParked) {
		r.lane.work.Go(func() {
			for _, w := range void {
				r.lane.host.withdraw(r.lane.ctx, r.task.Envelope, w, "the run goes on without it")
			}
		})
	}
	return err
}

// waitsFor returns a short description of the entities that a run waits for.
func waitsFor(wake Wake) string {
	var who []string
	for _, w := range wake.On {
		if !slices.Contains(who, w.Entity) {
			who = append(who, w.Entity)
		}
	}
	switch {
	case len(who) == 0:
		return "for its time"
	case len(who) > 3:
		return fmt.Sprintf("for %s and %d others", clip.Text(who[0], 128), len(who)-1)
	}
	return "for " + clip.Text(strings.Join(who, ", "), 128)
}

// waitRequest returns the approval request of a waiting run: its pending action names
// the first of the tasks, in AAIF's fields, and lists all of them in the mesh's own.
func waitRequest(c *state.Checkpoint, wake Wake) *aaif.ApprovalRequest {
	req := &aaif.ApprovalRequest{TriggerDescription: "The run waits " + waitsFor(wake) + "."}
	end := run.Earliest(c, wake.At)
	if !end.IsZero() {
		req.TimeoutAt = state.Time(end)
	}
	type waiting struct {
		Entity string `json:"entity"`
		TaskID string `json:"task_id"`
		Key    string `json:"key,omitempty"`
		Until  string `json:"until,omitempty"`
	}
	action := struct {
		ToolName  string    `json:"tool_name"`
		Arguments waiting   `json:"arguments"`
		Waits     []waiting `json:"waits"`
	}{ToolName: "wait"}
	var hints []string
	for _, w := range wake.On {
		one := waiting{Entity: w.Entity, TaskID: w.TaskID, Key: w.Key}
		if !w.Until.IsZero() {
			one.Until = state.Time(w.Until)
		}
		action.Waits = append(action.Waits, one)
		if !w.Asked.IsZero() && (req.RequestedAt == "" || state.Time(w.Asked) < req.RequestedAt) {
			req.RequestedAt = state.Time(w.Asked)
		}
		if !slices.Contains(hints, w.Entity) {
			hints = append(hints, w.Entity)
		}
	}
	if req.RequestedAt == "" {
		req.RequestedAt = state.Time(time.Now())
	}
	req.ApproverHint = strings.Join(hints, ", ")
	if len(action.Waits) > 0 {
		action.ToolName, action.Arguments = "ask "+wake.On[0].Entity, action.Waits[0]
	}
	req.PendingAction = json.RawMessage(wire.MustJSON(action))
	return req
}

// sentTasks are the tasks that a run has sent since it was claimed.
type sentTasks struct {
	mu   sync.Mutex
	made []state.Wait
	void []string // ids of tasks whose answer is no longer needed
}

// keep writes them into a checkpoint.
func (a *sentTasks) keep(c *state.Checkpoint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := &c.Mesh
	for _, w := range a.made {
		if !slices.ContainsFunc(m.Waits, func(o state.Wait) bool { return o.TaskID == w.TaskID }) {
			m.Waits = append(m.Waits, w)
		}
	}
	for i := range m.Waits {
		m.Waits[i].Void = m.Waits[i].Void || slices.Contains(a.void, m.Waits[i].TaskID)
	}
}

// sentTask returns what the run has recorded about a task that it sent.
func (r *Run) sentTask(taskID string) (state.Wait, bool) {
	r.sent.mu.Lock()
	defer r.sent.mu.Unlock()
	known := r.sent.made
	if c := r.cp.Load(); c != nil {
		known = append(slices.Clone(c.Mesh.Waits), known...)
	}
	for _, w := range known {
		if w.TaskID == taskID {
			w.Void = w.Void || slices.Contains(r.sent.void, taskID)
			return w, true
		}
	}
	return state.Wait{}, false
}

// noteSent records a task that the run has sent.
func (r *Run) noteSent(w state.Wait) {
	r.sent.mu.Lock()
	defer r.sent.mu.Unlock()
	r.sent.made = append(r.sent.made, w)
}

// voidSent records that the run needs no answer to a task any more.
func (r *Run) voidSent(taskID string) {
	r.sent.mu.Lock()
	defer r.sent.mu.Unlock()
	r.sent.void = append(r.sent.void, taskID)
}

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
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// ErrWaits is behind the error of a call that has been made, and whose answer
// may be days away: see [WaitsError].
var ErrWaits = errors.New("the answer may be long in coming")

// A WaitsError says that somebody has a task of the run's and has not answered.
// A durable run does not wait for that with a worker: its handler does what else
// it can do, then parks with [Run.ParkUntil], and makes the same call again when
// it is entered anew.
type WaitsError struct{ Wait state.Wait }

// Error names who has the task.
func (e *WaitsError) Error() string {
	return fmt.Sprintf("task %s is with %s: %v", clip.Text(e.Wait.TaskID, 128), clip.Text(e.Wait.Entity, 128), ErrWaits)
}

// Unwrap returns [ErrWaits].
func (e *WaitsError) Unwrap() error { return ErrWaits }

// A Wake says when a run that waits goes on: as soon as there is an answer to one
// of its tasks, when the time of one of them is over, at At, and at the task's
// own deadline, which ends it. All times are the server's.
type Wake struct {
	On []state.Wait
	At time.Time // zero: there is no such time
}

// maxWaits bounds the tasks whose answers one run may wait for.
const maxWaits = 1024

// ParkUntil is [Run.Park] for a run that waits for others. It is stored as
// awaiting_approval, with an approval request that says for whom and until when
// (AAIF, Agent State Document), and takes no worker's place until it is woken;
// then its handler begins anew, on whichever worker.
//
// People whom the run has asked, and who are not in wake, are told that their
// task is void. A wish to pause or to move the run stands until it is woken.
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
			case w.Void || run.Expired(w, now): // so that a late answer stays one
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

// waitsFor says in a few words for whom a run waits.
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

// waitRequest is the approval request of a run that waits: its pending action is
// the first of the tasks, and all of them in our words.
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
	req.PendingAction = json.RawMessage(mustJSON(action))
	return req
}

// sentTasks are what a run has asked of others since it was claimed.
type sentTasks struct {
	mu   sync.Mutex
	made []state.Wait
	void []string // tasks of which no answer is wanted any more
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

// sentTask is what the run has noted of a task that it has sent.
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

// noteSent notes a task that the run has sent.
func (r *Run) noteSent(w state.Wait) {
	r.sent.mu.Lock()
	defer r.sent.mu.Unlock()
	r.sent.made = append(r.sent.made, w)
}

// voidSent notes that no answer to a task is wanted any more.
func (r *Run) voidSent(taskID string) {
	r.sent.mu.Lock()
	defer r.sent.mu.Unlock()
	r.sent.void = append(r.sent.void, taskID)
}

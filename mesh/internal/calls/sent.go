package calls

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/state"
)

// ErrAnswerPending is wrapped by the error of a call that was sent and whose answer may take days:
// see [PendingError].
var ErrAnswerPending = errors.New("the answer may be long in coming")

// A PendingError says that a task of the run has not been answered. A durable run does
// not occupy a worker while it waits: its handler does its other work, then parks with
// ParkUntil of the run, and makes the same call again when it is started again after the wake.
type PendingError struct{ Wait state.Wait }

// Error names the entity that has the task.
func (e *PendingError) Error() string {
	return fmt.Sprintf("task %s is with %s: %v", clip.Text(e.Wait.TaskID, 128), clip.Text(e.Wait.Entity, 128), ErrAnswerPending)
}

// Unwrap returns [ErrAnswerPending].
func (e *PendingError) Unwrap() error { return ErrAnswerPending }

// sentTasks are the tasks that a run has sent to people since it was claimed, and what became of
// those that it has sent to others.
type sentTasks struct {
	mu     sync.Mutex
	made   []state.Wait
	voided []string            // ids of tasks whose answer is no longer needed
	got    map[string]struct{} // ids of tasks whose answer the run has
}

// KeepSent writes the tasks that the run has sent to people into a checkpoint, and which of the
// answers that it has waited for it has, or no longer needs.
func (b *Record) KeepSent(c *state.Checkpoint) {
	a := &b.sent
	a.mu.Lock()
	defer a.mu.Unlock()
	m := &c.Mesh
	for _, w := range a.made {
		if !slices.ContainsFunc(m.Waits, func(o state.Wait) bool { return o.TaskID == w.TaskID }) {
			m.Waits = append(m.Waits, w)
		}
	}
	for i := range m.Waits {
		m.Waits[i].Void = m.Waits[i].Void || slices.Contains(a.voided, m.Waits[i].TaskID)
		if _, answered := a.got[m.Waits[i].TaskID]; answered {
			m.Waits[i].Answered = true
		}
	}
}

// find returns what the run, whose last checkpoint is c, has recorded about a task that it sent.
func (a *sentTasks) find(c *state.Checkpoint, taskID string) (state.Wait, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.made
	if c != nil {
		known = append(slices.Clone(c.Mesh.Waits), known...)
	}
	for _, w := range known {
		if w.TaskID == taskID {
			w.Void = w.Void || slices.Contains(a.voided, taskID)
			return w, true
		}
	}
	return state.Wait{}, false
}

// note records a task that the run has sent.
func (a *sentTasks) note(w state.Wait) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.made = append(a.made, w)
}

// void records that the run needs no answer to a task any more.
func (a *sentTasks) void(taskID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.voided = append(a.voided, taskID)
}

// answered records that the run has the answer to a task.
func (a *sentTasks) answered(taskID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.got == nil {
		a.got = map[string]struct{}{}
	}
	a.got[taskID] = struct{}{}
}

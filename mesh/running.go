package mesh

import (
	"context"
	"sync"
	"time"
)

// running holds the tasks that have been taken in and not answered, so that
// they can be cancelled.
type running struct {
	mu   sync.Mutex
	byID map[string]*Task
}

func (r *running) add(t *Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[string]*Task{}
	}
	r.byID[t.Envelope.ID] = t
}

func (r *running) remove(t *Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Where replays are let through, the id may be another task's by now.
	if r.byID[t.Envelope.ID] == t {
		delete(r.byID, t.Envelope.ID)
	}
}

// matching returns the tasks for which match holds; nil matches all.
func (r *running) matching(match func(*Task) bool) (out []*Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.byID {
		if match == nil || match(t) {
			out = append(out, t)
		}
	}
	return out
}

// taskContext is a handler's context. It has a deadline of its own accord:
// the task's timer ends it, after the sender has been answered.
type taskContext struct {
	context.Context
	deadline time.Time
}

func (c taskContext) Deadline() (time.Time, bool) { return c.deadline, true }

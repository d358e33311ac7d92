package mesh

import (
	"context"
	"sync"
	"time"
)

// running holds the tasks that have been taken in and not answered, so that
// they can be cancelled. Their ids are the senders', and need not differ.
type running struct {
	mu    sync.Mutex
	tasks map[*Task]struct{}
}

func (r *running) add(t *Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks == nil {
		r.tasks = map[*Task]struct{}{}
	}
	r.tasks[t] = struct{}{}
}

func (r *running) remove(t *Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tasks, t)
}

// matching returns the tasks for which match holds; nil matches all.
func (r *running) matching(match func(*Task) bool) (out []*Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := range r.tasks {
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

package mesh

import (
	"context"
	"sync"
	"time"
)

// running holds the tasks that have been taken in and not answered, so that
// they can be cancelled, and ends those whose deadline passes. Deadlines mostly
// come in order, so the one timer is seldom set: a timer for each task would
// cost more than all the rest of this.
type running struct {
	overdue func(now time.Time, tasks []*Task)

	mu       sync.Mutex
	tasks    map[*Task]struct{}
	earliest time.Time // when timer goes off; no task is due before; zero: not set
	timer    *time.Timer
	stopped  bool
}

func (r *running) add(t *Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks == nil {
		r.tasks = map[*Task]struct{}{}
	}
	r.tasks[t] = struct{}{}
	if r.earliest.IsZero() || t.Deadline.Before(r.earliest) {
		r.alarm(t.Deadline)
	}
}

func (r *running) alarm(at time.Time) {
	if r.stopped {
		return
	}
	r.earliest = at
	if r.timer == nil {
		r.timer = time.AfterFunc(time.Until(at), r.expire)
		return
	}
	r.timer.Reset(time.Until(at))
}

func (r *running) remove(t *Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tasks, t)
}

// expire gives overdue the tasks that are past their deadline.
func (r *running) expire() {
	now := time.Now()
	var late []*Task
	var next time.Time
	r.mu.Lock()
	for t := range r.tasks {
		switch {
		case !t.Deadline.After(now):
			late = append(late, t)
			delete(r.tasks, t)
		case next.IsZero() || t.Deadline.Before(next):
			next = t.Deadline
		}
	}
	r.earliest = time.Time{}
	if !next.IsZero() {
		r.alarm(next)
	}
	r.mu.Unlock()
	if len(late) > 0 {
		r.overdue(now, late)
	}
}

// stop ends the watch for deadlines.
func (r *running) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
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

// taskContext is a handler's context: the task itself. What a context costs is
// paid by the handlers that ask for more than its deadline.
type taskContext struct{ task *Task }

func (c taskContext) Deadline() (time.Time, bool) { return c.task.Deadline, true }

func (c taskContext) Done() <-chan struct{} { return c.task.context().Done() }

func (c taskContext) Err() error {
	c.task.ctxMu.Lock()
	untouched := c.task.ctx == nil && c.task.stopCause == nil
	c.task.ctxMu.Unlock()
	if untouched {
		return nil
	}
	return c.task.context().Err()
}

func (c taskContext) Value(key any) any { return c.task.context().Value(key) }

// context makes the real context on first use.
func (t *Task) context() context.Context {
	t.ctxMu.Lock()
	defer t.ctxMu.Unlock()
	if t.ctx == nil {
		t.ctx, t.stopCtx = context.WithCancelCause(t.span.context(context.Background()))
		if t.stopCause != nil {
			t.stopCtx(t.stopCause)
		}
	}
	return t.ctx
}

// stop ends the task's context; the first cause counts.
func (t *Task) stop(cause error) {
	t.ctxMu.Lock()
	if t.stopCause == nil {
		t.stopCause = cause
	}
	stop := t.stopCtx
	t.ctxMu.Unlock()
	if stop != nil {
		stop(cause)
	}
}

package mesh

import (
	"context"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

// running holds the tasks that were accepted and are not answered, so that they can be
// cancelled. It calls overdue for tasks whose deadline passes, and held for tasks that
// take so long that their sender is told which worker has them.
type running struct {
	overdue func(now time.Time, tasks []*Task)
	held    func(*Task)

	mu     sync.Mutex
	first  *Task // of a list through Task.next and Task.prev
	alarm  sched.Alarm
	naming sched.Alarm
}

func (r *running) add(t *Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.listed, t.next = true, r.first
	if t.next != nil {
		t.next.prev = t
	}
	r.first = t
	if r.alarm.F == nil {
		r.alarm.F, r.naming.F = r.expire, r.name
	}
	r.alarm.Set(t.Deadline)
	if t.unnamed = t.wantsHolder(); t.unnamed {
		r.naming.Set(t.queued.Add(nameAfter))
	}
}

// name passes the tasks to held that were accepted nameAfter ago.
func (r *running) name() {
	now := time.Now()
	var due []*Task
	r.mu.Lock()
	r.naming.WentOff()
	for t := r.first; t != nil; t = t.next {
		if !t.unnamed {
			continue
		}
		if at := t.queued.Add(nameAfter); at.After(now) {
			r.naming.Set(at)
			continue
		}
		t.unnamed = false
		due = append(due, t)
	}
	r.mu.Unlock()
	for _, t := range due {
		r.held(t)
	}
}

// due changes the deadline of a task.
func (r *running) due(t *Task, deadline time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Deadline = deadline
	if t.listed {
		r.alarm.Set(deadline)
	}
}

func (r *running) remove(t *Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unlist(t)
}

func (r *running) unlist(t *Task) {
	if !t.listed {
		return
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		r.first = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	t.listed, t.prev, t.next = false, nil, nil
}

// expire unlists the tasks that are past their deadline and passes them to overdue.
func (r *running) expire() {
	now := time.Now()
	var late []*Task
	r.mu.Lock()
	r.alarm.WentOff()
	for t := r.first; t != nil; {
		next := t.next
		if t.Deadline.After(now) {
			r.alarm.Set(t.Deadline)
		} else {
			late = append(late, t)
			r.unlist(t)
		}
		t = next
	}
	r.mu.Unlock()
	if len(late) > 0 {
		r.overdue(now, late)
	}
}

// stop stops the timers.
func (r *running) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alarm.Stop()
	r.naming.Stop()
}

// matching returns the tasks for which match holds; nil matches all.
func (r *running) matching(match func(*Task) bool) (out []*Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := r.first; t != nil; t = t.next {
		if match == nil || match(t) {
			out = append(out, t)
		}
	}
	return out
}

// taskContext is a handler's context, backed by the task. The real context is made
// only for handlers that use more than the deadline.
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

// context returns the real context and makes it on first use.
func (t *Task) context() context.Context {
	t.ctxMu.Lock()
	defer t.ctxMu.Unlock()
	if t.ctx == nil {
		t.ctx, t.stopCtx = context.WithCancelCause(t.span.Context(context.Background()))
		if t.stopCause != nil {
			t.stopCtx(t.stopCause)
		}
	}
	return t.ctx
}

// stop cancels the task's context; the first cause is kept.
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

package mesh

import (
	"context"
	"time"

	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
)

// track adds a task to those that were accepted and are not answered (internal/deadlines).
func (h *host) track(t *Task) {
	var held time.Time
	if t.run == nil && rpc.Marked(t.reply) { // its sender wants the name of the worker that has it
		held = t.queued.Add(nameAfter)
	}
	h.running.Add(&t.entry, t, t.Deadline, held)
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

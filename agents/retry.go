package agents

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh"
)

// liveRetries is the document's retry policy for tasks of the live lane, if it
// declares one (AAIF, Runtime Configuration). On the durable lane the mesh
// retries a task from its last checkpoint. A live task has no checkpoint, so
// only a failed turn of the model can be retried without repeating a tool call.
func liveRetries(def *aaif.Definition) mesh.RetryPolicy {
	r := def.Agent.Runtime
	if r == nil || !r.MaxRetries.IsSet() {
		return mesh.RetryPolicy{}
	}
	return mesh.RetryPolicy{Max: int(min(r.MaxRetries.Int64(), 1<<20)), Backoff: mesh.Backoff(r.RetryBackoff)}
}

// again reports whether a failed turn is to be retried, after waiting for the
// policy's delay or the provider's, whichever is longer. Only transient
// failures are retried, and only if the task's deadline leaves time for it.
func (l *loop) again(ctx context.Context, task *mesh.Task, r *run, tries *int, err error) bool {
	var failed *model.Error
	if _, isLive := r.journal.(live); !isLive || *tries >= l.retries.Max || !errors.As(err, &failed) || !failed.Kind.Retryable() {
		return false
	}
	wait := l.retries.Pause(*tries+1, failed.RetryAfter)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	*tries++
	e := task.Envelope
	l.log.Warn("model turn failed, tried again", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "from", e.From, "turn", r.turns+1, "try", *tries, "wait", wait, "err", err)
	return pause.For(ctx, wait)
}

// transient reports whether another attempt at a failed turn may succeed.
func transient(err error) bool {
	var failed *model.Error
	return errors.As(err, &failed) && failed.Kind.Retryable()
}

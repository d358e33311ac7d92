package agents

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/mesh"
)

// liveRetries is the document's retry policy for tasks of the live lane, where
// it declares one (AAIF, Runtime Configuration). On the durable lane the mesh
// retries a task from where it stands. A live task stands nowhere else than in
// its worker's memory, so what can be retried there without doing anything twice
// is the model's turn that failed.
func liveRetries(def *aaif.Definition) mesh.RetryPolicy {
	r := def.Agent.Runtime
	if r == nil || !r.MaxRetries.IsSet() {
		return mesh.RetryPolicy{}
	}
	return mesh.RetryPolicy{Max: int(min(r.MaxRetries.Int64(), 1<<20)), Backoff: mesh.Backoff(r.RetryBackoff)}
}

// again reports whether a turn that failed is to be asked for once more, and
// waits as the policy says, or as long as the provider asks if that is longer.
// Only transient failures are retried, and only if there is time left before the
// task's deadline.
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
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

package mesh

import (
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// retries reports whether a failed task is retried, and after which pause. A retry
// that would begin after the deadline is not made: the sender gets the error now.
func (l *lane) retries(r *Run, problem *envelope.Error) (time.Duration, bool) {
	if problem == nil || !mayRetry(problem) || l.ctx.Err() != nil {
		return 0, false
	}
	m, policy := &r.cp.Load().Mesh, l.host.Retry
	if m.Attempt >= policy.Max {
		return 0, false
	}
	pause := policy.Pause(m.Attempt+1, problem.Backoff())
	return pause, m.Deadline.IsZero() || l.clock.now().Add(pause).Before(m.Deadline)
}

// mayRetry reports whether a retry may succeed. It is false for the error of the task's own
// deadline.
func mayRetry(problem *envelope.Error) bool {
	return problem.Retryable && !errors.Is(problem, errOverdue)
}

// exhausted reports whether the task fails because its retries are used up. A task
// whose deadline leaves no time for a retry does not count as exhausted.
func (r *Run) exhausted(problem *envelope.Error) bool {
	c := r.cp.Load()
	return c != nil && mayRetry(problem) && c.Mesh.Attempt >= r.lane.host.Retry.Max
}

// retry writes a checkpoint with a failure that will be retried. r.mu is held.
func (r *Run) retry(problem *envelope.Error) error {
	return r.writeOutcome(func(c *state.Checkpoint) error {
		run.Retry(c, problem.Code, r.runError(problem, r.lane.host.Retry.Max-c.Mesh.Attempt-1))
		return nil
	})
}

// retried naks the message of a task that is retried, with the pause before the next
// attempt.
func (l *lane) retried(r *Run, problem *envelope.Error, pause time.Duration, err error) {
	if errors.Is(err, ErrLost) {
		return
	}
	if err != nil {
		l.nakFailed(r, err)
		return
	}
	l.unlist(r)
	l.tel.Retried(l.host.Entity)
	l.host.events.taskEvent(intents.TaskRetrying, r.task, problem)
	l.nak(r.hold, pause)
	l.host.calls.Stop(r.cp.Load().Mesh.Calls) // the next attempt makes its own
}

package mesh

import (
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// retries reports whether a failure is worth another attempt, and after which
// pause: one that would outlast the task is not begun, its sender hears of the
// failure now.
func (l *lane) retries(r *Run, problem *envelope.Error) (time.Duration, bool) {
	if problem == nil || !r.mayPass(problem) || l.ending() {
		return 0, false
	}
	m, policy := &r.cp.Load().Mesh, l.host.Retry
	if m.Attempt >= policy.Max {
		return 0, false
	}
	pause := policy.Pause(m.Attempt+1, problem.Backoff())
	return pause, m.Deadline.IsZero() || l.clock.now().Add(pause).Before(m.Deadline)
}

// mayPass reports whether an error may be gone the next time. The task's own
// deadline stays where it is.
func (r *Run) mayPass(problem *envelope.Error) bool {
	return problem.Retryable && !errors.Is(problem, errOverdue)
}

// exhausted reports whether a task ends only because it was tried often enough.
// One whose time does not allow another attempt has not been.
func (r *Run) exhausted(problem *envelope.Error) bool {
	c := r.cp.Load()
	return c != nil && r.mayPass(problem) && c.Mesh.Attempt >= r.lane.host.Retry.Max
}

// retry commits a failure that is not the last one. r.mu is held.
func (r *Run) retry(problem *envelope.Error) error {
	return r.write(r.lane.ctx, func(c *state.Checkpoint) error {
		if err := r.stagedOn(c); err != nil {
			return err
		}
		run.Retry(c, problem.Code, r.runError(problem, r.lane.host.Retry.Max-c.Mesh.Attempt-1))
		return nil
	})
}

// retried gives a task back that is to be tried again.
func (l *lane) retried(r *Run, problem *envelope.Error, pause time.Duration, err error) {
	if errors.Is(err, ErrLost) {
		return
	}
	if err != nil {
		l.nakFailed(r, err)
		return
	}
	l.unlist(r)
	l.tel.retried(l.host)
	l.host.taskEvent(intents.TaskRetrying, r.task, problem)
	l.nak(r.hold, pause)
	l.stopCalls(r.cp.Load()) // the next attempt asks anew
}

package mesh

import (
	"cmp"
	"context"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

// A task that is delayed beyond its deadline is redelivered pastDeadline after it. The server may
// redeliver a little early, and a task that came back before its deadline would be executed,
// because it was already counted.
const pastDeadline = 50 * time.Millisecond

// delayOverQuota naks a new task whose sender is over its quota, until the quota has
// room or the deadline passes, and reports whether it did. It publishes
// mesh.task.retrying with E_RATE_LIMITED; the task's reply comes when it is done, or
// at its deadline.
//
// Unlike on the live lane the task is not refused: the sender may have gone since the
// server acknowledged the task, and a refusal would end its run. Each worker counts a
// task against the quota once, so that a task is not delayed again when it is
// redelivered. Commands have a quota of their own: one of them may cancel the excess.
func (ds *deliveries) delayOverQuota(r *Run) bool {
	t := r.task
	priority, problem := ds.counted.Pace(ds.host.node.quotas, r.hold.Seq, t.Envelope, t.KeyID != "", time.Now())
	if problem == nil {
		t.Envelope = capped(t.Envelope, priority)
		return false
	}
	wait, left := problem.Backoff(), ds.deadlineOf(r).Sub(ds.clock.now())
	if wait <= 0 || left <= 0 {
		return false // admitted, or too late: begin checks the deadline
	}
	problem = problem.WithBackoff(min(wait, left+pastDeadline))
	if r.hold.Delivered <= 1 {
		ds.nakDelayed(r, problem)
		return true
	}
	// It was delivered before, so a worker may have begun it and died: a run goes on
	// at once, whatever its sender's quota.
	ds.countWaiting(nil, 1)
	ds.workOn(r.tally, func() {
		defer ds.countWaiting(nil, -1)
		ctx, cancel := context.WithTimeout(ds.ctx, sched.StoreTimeout)
		defer cancel()
		switch rec, err := r.read(ctx); {
		case err != nil:
			ds.host.log.Warn("run not read", "run", r.id.Run, "err", err)
			ds.nak(r.hold, time.Second)
		case rec != nil:
			ds.enqueue(r)
		default:
			ds.nakDelayed(r, problem)
		}
	})
	return true
}

// admitOverheard reports whether a command that was overheard in the queue is within
// its sender's quota. One that is over it waits until it is drawn, or comes again.
func (ds *deliveries) admitOverheard(r *Run) bool {
	return ds.counted.Overheard(ds.host.node.quotas, r.hold.Seq, r.task.Envelope, r.task.KeyID != "", time.Now())
}

// nakDelayed naks a task with the delay of problem, and publishes mesh.task.retrying.
func (ds *deliveries) nakDelayed(r *Run, problem *envelope.Error) {
	e := r.task.Envelope
	ds.host.log.Debug("task put off", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "from", e.From, "to", e.To,
		"type", string(e.Type), "priority", string(e.Priority), "code", string(problem.Code), "wait", problem.Backoff())
	ds.counted.Add(r.hold.Seq)
	if !intents.IsCommand(e.Intent) {
		ds.host.events.taskEvent(intents.TaskRetrying, r.task, problem)
	}
	ds.nak(r.hold, problem.Backoff())
}

// deadlineOf returns the deadline of a new task, by the server's clock.
func (ds *deliveries) deadlineOf(r *Run) time.Time {
	_ = r.task.readRequires() // an error in it is refused later
	return r.hold.Stored.Add(ds.timeout(r.task.Requires))
}

// timeout returns how long a durable task may take: its own timeout within the
// worker's limit.
func (ds *deliveries) timeout(requires envelope.Requirements) time.Duration {
	timeout := cmp.Or(requires.Timeout, ds.cfg.DefaultTimeout)
	return min(timeout, ds.cfg.MaxTimeout)
}

// delayCrowded naks the message of a task that may not begin, and publishes the delay
// once.
func (ds *deliveries) delayCrowded(r *Run) {
	problem := ds.share.Trouble()
	if problem == nil {
		ds.nak(r.hold, 0) // the task may begin by now
		return
	}
	wait := max(0, min(problem.Backoff(), ds.deadlineOf(r).Sub(ds.clock.now())))
	if ds.counted.Has(r.hold.Seq) && r.hold.Delivered > 1 {
		ds.nak(r.hold, wait)
		return
	}
	ds.nakDelayed(r, problem.WithBackoff(wait))
}

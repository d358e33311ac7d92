package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// perform runs one durable task in one of the agent's places. The outcome is stored on
// another goroutine, so that the place is free as soon as the handler has returned.
func (r *Run) perform() {
	l, t := r.lane, r.task
	defer r.tally.add(-1) // see deliveries.await
	l.deliveries.countWaiting(r, -1)
	if t.done.Load() {
		return // cancelled, or overdue, before it began
	}
	t.placed.Store(true)
	t.begins()
	if l.enterSlot(t, slotPatience) != nil {
		r.nakUnbegun(100 * time.Millisecond)
		return
	}
	defer l.leaveSlot(t)
	if !l.begin(r) {
		return
	}
	if t.tree.Hop() && !r.restored {
		if err := t.tree.Admit(taskContext{t}); err != nil {
			l.host.fail(t, err)
			return
		}
	}
	l.performing.Add(1)
	started := time.Now()
	l.host.execute(t)
	l.pace.add(time.Since(started))
	l.performing.Add(-1)
	r.mu.Lock()
	end := r.end
	r.mu.Unlock()
	if end != nil {
		l.releaseParked(r, end)
	}
}

// begin claims the run for the handler and reports whether the handler may start.
func (l *lane) begin(r *Run) bool {
	t := r.task
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.done.Load() {
		return false // ended while it waited for this place
	}
	if !r.claimedEarly {
		v, err := r.claim(l.ctx, nil)
		if err != nil || v != run.Mine {
			if v == run.Ended {
				r.stop(ErrLost) // a cancel from now on is too late
			}
			r.dropped = true
			t.claim()
			l.workOn(r.tally, func() { l.applyVerdict(r, v, err) })
			return false
		}
	}
	r.observe(PointClaimed)
	l.own(r)
	l.guardian.Need()
	c := r.cp.Load()
	if r.recovered {
		l.tel.Recovered(l.host.Entity)
	}
	wire.LogReceived(l.host.log, t.Envelope)
	if c.Mesh.Epoch == 1 {
		l.host.node.journal.RememberReceived(l.host.Entity, t.Envelope, c.Mesh.Task, false)
	}
	if limit := l.host.Timeout; limit > 0 {
		// AAIF runtime.timeout_seconds is about running, requires.timeout_ms
		// about waiting for the answer.
		t.Deadline = earlier(t.Deadline, time.Now().Add(limit-c.Mesh.Ran))
		l.host.running.Due(&t.entry, t.Deadline)
	}
	l.host.events.taskEvent(intents.TaskStarted, t, nil)
	return true
}

// finish ends a task with a payload or an error: after its handler has returned, or because of a
// cancel or the deadline. Only the caller for which Task.claim returned true may call it.
func (r *Run) finish(payload json.RawMessage, failure error) {
	l := r.lane
	if o, ok := failure.(*delegation); ok {
		r.delegation, failure = o, nil
	}
	l.finishing.Add(1)
	l.deliveries.countWaiting(r, -1)
	l.workOn(r.tally, func() {
		defer l.finishing.Add(-1)
		defer r.closeOver()
		l.storeOutcome(r, payload, failure)
	})
}

// closeOver closes r.over: the end by a cancel is stored, or cannot be stored by this worker. The
// run's own calls are cancelled after that.
func (r *Run) closeOver() {
	if r.over != nil {
		r.overOnce.Do(func() { close(r.over) })
	}
}

// storeOutcome writes the outcome of a run into its record and stores the reply. A
// failure that may be retried is stored as a retry.
func (l *lane) storeOutcome(r *Run, payload json.RawMessage, failure error) {
	var problem *envelope.Error
	if failure != nil {
		problem = fault.ForPeer(failure)
	}
	r.mu.Lock()
	if r.end != nil {
		end := r.end
		r.mu.Unlock()
		l.releaseParked(r, end)
		if errors.Is(end, ErrParked) && fault.IsCode(problem, envelope.CodeCancelled) {
			l.cancelParked(r, problem)
		}
		return
	}
	if r.cp.Load() == nil { // not claimed yet
		v, err := r.claim(l.ctx, problem)
		r.stop(ErrLost)
		r.mu.Unlock()
		r.closeOver()
		l.applyVerdict(r, v, err)
		return
	}
	if pause, again := l.retries(r, problem); again {
		err := r.retry(problem)
		r.stop(ErrLost)
		r.mu.Unlock()
		l.retried(r, problem, pause, err)
		return
	}
	r.observe(PointBeforeTerminal)
	err := r.stream.EndTurn(true)
	ended := false
	if err == nil && problem == nil && r.mayEndBare() {
		ended, err = r.endBare(payload)
	}
	if err == nil && !ended {
		err = r.writeOutcome(func(c *state.Checkpoint) error { return r.setEnd(c, payload, problem) })
	}
	if err == nil {
		r.wrote = true
		r.observe(PointAfterTerminal)
	}
	lost := errors.Is(err, ErrLost)
	r.stop(ErrLost)
	r.mu.Unlock()
	if lost {
		if fault.IsCode(problem, envelope.CodeCancelled) {
			l.cancelParked(r, problem) // parked by a write whose confirmation was lost
		}
		return
	}
	r.closeOver()
	l.applyVerdict(r, run.Ended, err)
}

// cancelParked cancels a run that parked here while it was being cancelled. The sender
// of the cancel was already told that it succeeded.
func (l *lane) cancelParked(r *Run, problem *envelope.Error) {
	ctx, cancel := context.WithTimeout(l.ctx, sched.StoreTimeout)
	defer cancel()
	id := envelope.NewID()
	if by := r.cancelledBy.Load(); by != nil {
		id = *by
	}
	o := &orders.Order{Order: run.Order{Envelope: id, Intent: intents.TaskCancel, From: l.host.Entity, Run: r.id.Run}, Signed: true, Problem: problem}
	if out := l.commands.applyStored(ctx, o, false, nil); out.Refused != nil {
		l.host.log.Warn("parked run not cancelled", "run", r.id.Run, "err", out.Refused)
	}
}

// applyVerdict acts on a run's message as the verdict of its claim or outcome demands:
// it acks or naks the message, starts a transfer or rejects it. For an ended run it
// first stores the reply and cancels the run's calls.
func (l *lane) applyVerdict(r *Run, v run.Verdict, err error) {
	switch {
	case errors.Is(err, errCrowded):
		l.unlist(r)
		l.deliveries.delayCrowded(r)
		return
	case err != nil:
		l.nakFailed(r, err)
		return
	}
	l.unlist(r)
	switch v {
	case run.Ended:
		if err := l.replies.publishOutcome(r); err != nil {
			l.host.counts.replyFailed.Add(1)
			l.nakFailed(r, err)
			return
		}
		r.observe(PointReplied)
		l.host.calls.Stop(r.cp.Load().Mesh.Calls) // before the ack: if this worker dies meanwhile, the next one repeats it
		l.ack(r.hold)
		r.observe(PointAcked)
	case run.Parked:
		if r.parked == "" && r.stored != nil && l.clock.now().Sub(r.hold.Stored) < parkedGrace {
			// The message resumes the run, whose record is about to change.
			l.nak(r.hold, time.Second)
			return
		}
		l.ack(r.hold)
		r.observe(PointAcked)
	case run.Moving:
		l.transfers.startTransfer(r)
	case run.Foreign:
		l.ack(r.hold)
	case run.Later:
		l.nak(r.hold, laterPause)
	case run.Older:
		l.dropHold(r.hold)
	case run.Reused:
		l.deliveries.reject(r.hold, r.task.Envelope, r.task.cbor, envelope.Errorf(envelope.CodeReplay, "the id belongs to another task"))
	}
}

// parkedGrace is the age up to which a message that resumes a run is redelivered when
// it finds the run parked: the record may be about to change. An older message is
// acked as superfluous.
const parkedGrace = 30 * time.Second

// unreadablePause is the delay of a nak for a run that this worker cannot read:
// another worker may be able to.
const unreadablePause = time.Minute

// unreadable returns the reason why this worker can never read a record: it lacks a key, it is
// older than the record, or the record was forged or damaged. For any other error it returns nil.
func unreadable(err error) error {
	for _, e := range []error{state.ErrSealed, state.ErrForged, state.ErrClear, state.ErrReplaced, state.ErrNewer, state.ErrInvalid, state.ErrChecksum, state.ErrTooLarge} {
		if errors.Is(err, e) {
			return e
		}
	}
	return nil
}

// releaseParked releases the run after its handler returned ErrParked: it acks the
// message of a parked run, starts a transfer, or naks the message so that another
// worker goes on.
func (l *lane) releaseParked(r *Run, why error) {
	if !errors.Is(why, ErrParked) {
		return // another worker has its message, or it was answered
	}
	if !r.releasing.CompareAndSwap(false, true) {
		return
	}
	r.task.claim()
	l.workOn(r.tally, func() {
		l.unlist(r)
		h, t := l.host, r.task
		if r.parked == "" {
			l.nak(r.hold, 0) // the next worker goes on at once
			return
		}
		h.events.taskEvent(intents.TaskParked, t, nil)
		if r.parked == aaif.RunMigrating {
			l.transfers.startTransfer(r)
			return
		}
		l.ack(r.hold)
		r.observe(PointAcked)
		l.waits.CheckSoon(r.id.Run)
	})
}

// errOverdue is wrapped by the error of a task whose own deadline has passed.
var errOverdue = fmt.Errorf("the task's deadline has passed: %w", context.DeadlineExceeded)

// overdue returns E_TIMEOUT with the limit that the task exceeded: the sender's
// timeout, or the agent's limit on running time.
func (r *Run) overdue() *envelope.Error {
	limit := r.task.Requires.Timeout
	if r.lane.clock.now().Before(r.deadline) && r.lane.host.Timeout > 0 {
		limit = r.lane.host.Timeout
	}
	return notDone(limit).WithCause(errOverdue)
}

// laterPause is the delay of a nak for a message when another message may belong to the
// same run.
const laterPause = 5 * time.Second

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
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// perform runs one durable task in one of the agent's places. What follows when
// the handler has returned goes on beside it, so that the place is free.
func (l *lane) perform(t *Task) {
	r := t.run
	l.countWaiting(r, -1)
	if t.done.Load() {
		return // cancelled, or overdue, before it began
	}
	if l.slots != nil {
		if l.slots.enter(t, slotPatience) != nil {
			l.nakUnbegun(t, 100*time.Millisecond)
			return
		}
		defer l.slots.leave(t)
	}
	if !l.begin(r) {
		return
	}
	if t.hop() && !r.restored {
		if err := l.host.admitHop(taskContext{t}, t); err != nil {
			l.host.fail(t, err)
			return
		}
	}
	l.performing.Add(1)
	started := time.Now()
	l.host.execute(t)
	l.pace.add(time.Since(started))
	l.performing.Add(-1)
	if end := r.ended(); end != nil {
		l.releaseParked(r, end)
	}
}

// begin claims the run for the handler, and reports whether that begins.
func (l *lane) begin(r *Run) bool {
	t := r.task
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.done.Load() {
		return false // ended while this place was being taken
	}
	if !r.claimedEarly {
		v, err := r.claim(l.ctx, nil)
		if err != nil || v != run.Mine {
			if v == run.Ended {
				r.stop(ErrLost) // a cancel that comes now has nothing to end
			}
			r.dropped = true
			t.claim()
			l.work.Go(func() { l.applyVerdict(r, v, err) })
			return false
		}
	}
	r.observe(PointClaimed)
	l.mu.Lock()
	l.runs[r.id.Run] = r
	delete(l.enlisted, r.id.Run)
	l.mu.Unlock()
	c := r.cp.Load()
	if r.recovered {
		l.tel.recovered(l.host)
	}
	consumed(l.host.log, t.Envelope)
	if c.Mesh.Epoch == 1 {
		l.host.node.rememberReceived(l.host.Entity, t.Envelope, c.Mesh.Task, false)
	}
	if limit := l.host.Timeout; limit > 0 {
		// AAIF runtime.timeout_seconds is about running, requires.timeout_ms
		// about waiting for the answer.
		l.host.running.due(t, earlier(t.Deadline, time.Now().Add(limit-c.Mesh.Ran)))
	}
	l.host.taskEvent(intents.TaskStarted, t, nil)
	return true
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// end brings a task to its end from outside of its handler, or after it: with a
// payload, or with an error. t.claim has been won.
func (l *lane) end(t *Task, payload json.RawMessage, failure error) {
	l.finishing.Add(1)
	l.countWaiting(t.run, -1)
	l.work.Go(func() {
		defer l.finishing.Add(-1)
		l.storeOutcome(t.run, payload, failure)
	})
}

// storeOutcome writes the outcome of a run, and lets its sender know.
func (l *lane) storeOutcome(r *Run, payload json.RawMessage, failure error) {
	var problem *envelope.Error
	if failure != nil {
		problem = border(failure)
	}
	r.mu.Lock()
	if r.end != nil {
		end := r.end
		r.mu.Unlock()
		l.releaseParked(r, end)
		if errors.Is(end, ErrParked) && isCode(problem, envelope.CodeCancelled) {
			l.cancelParked(r, problem)
		}
		return
	}
	if r.cp.Load() == nil { // it had not begun
		v, err := r.claim(l.ctx, problem)
		r.stop(ErrLost)
		r.mu.Unlock()
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
	err := r.stream.endTurn(true)
	if err == nil {
		err = r.write(l.ctx, func(c *state.Checkpoint) error {
			if err := r.stagedOn(c); err != nil {
				return err
			}
			return r.setEnd(c, payload, problem)
		})
	}
	if err == nil {
		r.wrote = true
		r.observe(PointAfterTerminal)
	}
	lost := errors.Is(err, ErrLost)
	r.stop(ErrLost)
	r.mu.Unlock()
	if lost {
		if isCode(problem, envelope.CodeCancelled) {
			l.cancelParked(r, problem) // by a write that nobody confirmed
		}
		return
	}
	l.applyVerdict(r, run.Ended, err)
}

// cancelParked ends a run that stopped here for now at the moment at which it was
// cancelled: who cancelled it was told so.
func (l *lane) cancelParked(r *Run, problem *envelope.Error) {
	ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
	defer cancel()
	o := &order{Order: run.Order{Envelope: envelope.NewID(), Intent: intents.TaskCancel, From: l.host.Entity, Run: r.id.Run}, signed: true, problem: problem}
	if out := l.applyStored(ctx, o, false); out.refused != nil {
		l.host.log.Warn("parked run not cancelled", "run", r.id.Run, "err", out.refused)
	}
}

// applyVerdict lets the world know what a run has come to.
func (l *lane) applyVerdict(r *Run, v run.Verdict, err error) {
	h := l.host
	switch {
	case errors.Is(err, errCrowded):
		l.unlist(r)
		l.delayCrowded(r)
		return
	case err != nil:
		l.nakFailed(r, err)
		return
	}
	l.unlist(r)
	switch v {
	case run.Ended:
		if err := l.publishOutcome(r); err != nil {
			h.log.Warn("reply not stored", "run", r.id.Run, "id", r.task.Envelope.ID, "err", err)
			h.counts.replyFailed.Add(1)
			l.nak(r.hold, time.Second) // whoever gets the message sends it
			return
		}
		r.observe(PointReplied)
		l.stopCalls(r.cp.Load())
		l.ack(r.hold)
		r.observe(PointAcked)
	case run.Parked:
		if r.parked == "" && r.stored != nil && l.clock.now().Sub(r.hold.Stored) < parkedGrace {
			// It is to go on, and waits: the record is about to be changed.
			l.nak(r.hold, time.Second)
			return
		}
		l.ack(r.hold)
		r.observe(PointAcked)
	case run.Moving:
		l.startTransfer(r)
	case run.Foreign:
		l.ack(r.hold)
	case run.Later:
		l.nak(r.hold, laterPause)
	case run.Older:
		l.dropHold(r.hold)
	case run.Reused:
		l.reject(r.hold, r.task.Envelope, r.task.cbor, envelope.Errorf(envelope.CodeReplay, "the id belongs to another task"))
	}
}

// parkedGrace is for how long a message that lets a run go on finds it waiting,
// before it is taken for one too many.
const parkedGrace = 30 * time.Second

// nakFailed gives a message back whose run could not be read or written.
func (l *lane) nakFailed(r *Run, err error) {
	l.unlist(r)
	e := r.task.Envelope
	l.host.log.Error("run not written", "run", r.id.Run, "id", e.ID, "corr", e.Corr, "err", err)
	pause := time.Second
	if unreadable(err) {
		pause = unreadablePause
		l.tel.unreadable(l.host)
		l.unreadableRun.Store(&failure{time.Now(), fmt.Errorf("run %s: %w", r.id.Run, err)})
	}
	l.nak(r.hold, pause)
}

// unreadablePause is for how long a message is put off whose run this worker
// cannot read: another one may.
const unreadablePause = time.Minute

// unreadable reports errors that will be there the next time, too: this worker
// lacks a key, or is too old, or what is stored was put there by another.
func unreadable(err error) bool {
	for _, e := range []error{state.ErrSealed, state.ErrForged, state.ErrClear, state.ErrReplaced, state.ErrNewer, state.ErrInvalid, state.ErrChecksum, state.ErrTooLarge} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// releaseParked lets a run go whose handler has returned and that does not end here.
func (l *lane) releaseParked(r *Run, why error) {
	if !errors.Is(why, ErrParked) {
		return // its message is not ours, or was dealt with
	}
	if !r.releasing.CompareAndSwap(false, true) {
		return
	}
	r.task.claim()
	l.work.Go(func() {
		l.unlist(r)
		h, t := l.host, r.task
		if r.parked == "" {
			l.nak(r.hold, 0) // whoever gets it goes on at once
			return
		}
		h.taskEvent(intents.TaskParked, t, nil)
		if r.parked == aaif.RunMigrating {
			l.startTransfer(r)
			return
		}
		l.ack(r.hold)
		r.observe(PointAcked)
		l.waits.checkSoon(r.id.Run)
	})
}

// ending reports that nothing will be written any more.
func (l *lane) ending() bool { return l.ctx.Err() != nil }

// errOverdue is behind the error of a task whose own deadline has passed.
var errOverdue = fmt.Errorf("the task's deadline has passed: %w", context.DeadlineExceeded)

// overdue says which of its limits the task has come up against: the sender's, or
// the agent's for running.
func (r *Run) overdue() *envelope.Error {
	limit := r.task.Requires.Timeout
	if r.lane.clock.now().Before(r.deadline) && r.lane.host.Timeout > 0 {
		limit = r.lane.host.Timeout
	}
	return notDone(limit).WithCause(errOverdue)
}

// laterPause is the delay of a nak for a message whose run another message may carry.
const laterPause = 5 * time.Second

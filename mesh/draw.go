package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// Headers of the durable lane.
const (
	// HeaderRun, on a message of the work queue, says that it is no new task:
	// the run with this id goes on.
	HeaderRun = "Aee-Run"
	// HeaderEpoch, on a reply, is the epoch of the run's owner that made it.
	HeaderEpoch = "Aee-Epoch"
	// HeaderTaskDigest, on the terminal reply to a durable task, tells which
	// task of that id was done; see docs/nats-binding.md.
	HeaderTaskDigest = "Aee-Task-Digest"
)

// dispatch decides what a message is: a task, a command, or nothing that can be
// worked on. It must not block, so whatever asks a store goes on elsewhere.
func (l *lane) dispatch(hold *hold) {
	msg := &nats.Msg{Subject: hold.Subject, Data: hold.Data, Header: hold.Header}
	if isCBOR(msg) {
		l.inBackground(func() {
			if env, cbor, err := l.decode(msg); err != nil {
				l.reject(hold, l.salvage(err), cbor, border(err))
			} else {
				l.check(hold, env, cbor)
			}
		})
		return
	}
	env, cbor, err := l.decode(msg)
	kick := hold.Header.Get(HeaderRun) != ""
	switch {
	case err != nil:
		l.work.Go(func() { l.reject(hold, l.salvage(err), cbor, border(err)) })
	case kick, env.Sig != nil && l.host.node.asksSeen(env, true), slow(l.host.node.cfg.Verifier, env):
		// Reads the run, or computes for as long as a task may take.
		l.inBackground(func() { l.check(hold, env, cbor) })
	default:
		l.check(hold, env, cbor)
	}
}

func (l *lane) decode(msg *nats.Msg) (env *envelope.Envelope, cbor bool, err error) {
	if env, cbor, err = l.host.node.decode(msg); err == nil {
		err = bounded(env)
	}
	return env, cbor, err
}

// inBackground does what takes long with a message that is drawn, and counts it meanwhile.
func (l *lane) inBackground(f func()) {
	l.countWaiting(nil, 1)
	l.work.Go(func() {
		f()
		l.countWaiting(nil, -1)
	})
}

// countWaiting counts a task that is drawn and not begun; r is counted once.
func (l *lane) countWaiting(r *Run, n int64) {
	if r == nil || r.waiting.Swap(n > 0) != (n > 0) {
		l.waiting.Add(n)
	}
}

// check decides about a valid envelope, as strictly as the live lane, with the
// time at which the server stored it in the place of now. What passes waits in
// the agent's queue, beside the live tasks.
func (l *lane) check(hold *hold, env *envelope.Envelope, cbor bool) {
	h := l.host
	t := &Task{Envelope: env, host: h, cbor: cbor}
	r := newRun(l, t, hold)
	t.queued = l.clock.past(hold.Stored)

	if err := l.resumed(r); err != nil {
		l.nakFailed(r, err)
		return
	}
	var problem *envelope.Error
	if r.stored == nil {
		problem, _ = t.admit()
	}
	if problem != nil {
		l.work.Go(func() { l.reject(hold, t.Envelope, cbor, problem) })
		return
	}
	l.observe(PointDelivered, r.id)
	if r.stored == nil && l.delayEarly(r) {
		return
	}
	if mine := l.has(r.id.Run); mine != nil && !intents.IsCommand(t.Envelope.Intent) {
		l.work.Go(func() { l.redelivered(mine, hold) })
		return
	}
	if r.stored == nil {
		ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
		err := l.firstInMesh(ctx, r)
		cancel()
		switch {
		case errors.Is(err, errLater):
			l.nak(hold, laterPause)
			return
		case err != nil:
			l.work.Go(func() { l.reject(hold, t.Envelope, cbor, border(err)) })
			return
		}
	}
	if r.stored == nil && l.delayOverQuota(r) {
		return
	}
	l.enqueue(r)
}

// enqueue gives a task a place in the agent's queue.
func (l *lane) enqueue(r *Run) {
	h, t, hold := l.host, r.task, r.hold
	command := intents.IsCommand(t.Envelope.Intent)
	if !command {
		if mine := l.enlist(r); mine != nil {
			l.work.Go(func() { l.redelivered(mine, hold) })
			return
		}
	}
	t.span = h.node.tel.startTask(t, hold.Header)
	if command {
		l.work.Go(func() { l.command(hold, t) })
		return
	}
	r.refusal = t.refusal()
	l.countWaiting(r, 1)
	h.running.add(t)
	if !h.queue.Put(t, t.Envelope.Priority.Rank()) {
		l.counted.add(hold.Seq)
		l.nakUnbegun(t, 250*time.Millisecond)
	}
}

// delayEarly puts a task off that is to begin later (requires.not_before).
func (l *lane) delayEarly(r *Run) bool {
	_ = r.task.readRequires() // its fault is answered when the run is claimed
	at := r.task.notBefore()
	if at.IsZero() {
		return false
	}
	left := at.Sub(l.clock.now())
	if left <= 0 {
		return false
	}
	pause := min(left, maxEarlyDelay)
	if r.hold.Header.Get(HeaderRun) != "" && r.hold.Delivered <= 3 {
		pause = min(pause, time.Second) // the run's record is about to be written
	}
	l.nak(r.hold, pause)
	return true
}

// maxEarlyDelay is the longest time for which a task that is to begin later is given
// back at once.
const maxEarlyDelay = 10 * time.Minute

// resumed looks up the run that the message says goes on. What it is about is
// in the run's record, where it was verified; the message's body is not.
func (l *lane) resumed(r *Run) error {
	id := r.hold.Header.Get(HeaderRun)
	if id == "" {
		return nil
	}
	rec, err := l.cfg.States.Get(l.ctx, state.ID{Entity: l.host.Entity, Run: id})
	if errors.Is(err, state.ErrNotFound) {
		return nil // then it is a task like any other
	}
	if err != nil {
		return err
	}
	c, err := l.codec.Read(rec)
	if err != nil || c.Mesh.Task == nil {
		return err
	}
	env, err := envelope.ParseLimits(c.Mesh.Task, l.host.node.limits)
	if err != nil {
		return err
	}
	t := r.task
	if env.ID != t.Envelope.ID {
		return nil // the header is nobody's word: it is another task, like any other
	}
	r.id.Run, r.stored = id, c
	t.Envelope, t.KeyID, t.cbor = capped(env, envelope.Priority(c.Mesh.Priority)), c.Mesh.KeyID, c.Mesh.CBOR
	return nil
}

// stale refuses a task whose ts is further than the skew bound from the time at
// which the server stored it; for one that was to begin later, and for a dead
// letter that an operator tries again, that time may be long after ts, but not longer
// than runs are kept, which is what refuses a second one. It is asked of tasks that
// have no run yet.
func (l *lane) stale(r *Run, retried bool) *envelope.Error {
	skew := l.host.node.cfg.Skew
	if skew <= 0 {
		return nil
	}
	err := sign.CheckTime(r.task.Envelope, r.hold.Stored, skew)
	if err == nil {
		return nil
	}
	at := r.task.notBefore()
	if retried {
		at, _ = r.task.Envelope.Time()
	}
	if !at.IsZero() && r.hold.Stored.After(at.Add(-skew)) && r.hold.Stored.Before(at.Add(DefaultRunTimeout)) {
		return nil
	}
	return border(err)
}

// redelivered takes a message for a run that this worker has already, begun or not: its
// lease had ended, because the worker stood still or was cut off, and the server
// has handed it out anew. If the run is still ours it goes on under the new one.
func (l *lane) redelivered(r *Run, hold *hold) {
	r.verify(l.ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil || r.dropped || r.hold.Seq != hold.Seq {
		l.nak(hold, time.Second)
		return
	}
	l.dropHold(r.hold)
	r.hold = hold
}

// salvage makes what could be read of a broken message an envelope.
func (l *lane) salvage(err error) *envelope.Envelope {
	partial := &envelope.Envelope{}
	var bad *envelope.InvalidError
	var large *oversized
	switch {
	case errors.As(err, &bad):
		partial = bad.Partial()
	case errors.As(err, &large):
		partial = large.env
	}
	return salvage(partial, l.host.Entity)
}

// storeTimeout bounds one question to a store where nothing else does.
const storeTimeout = 10 * time.Second

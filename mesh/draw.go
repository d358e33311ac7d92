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
	// HeaderRun, on a message of the work queue, says that the message is not a new
	// task: it resumes the run with this id.
	HeaderRun = "Aee-Run"
	// HeaderEpoch, on a reply, is the epoch of the run's owner that made it.
	HeaderEpoch = "Aee-Epoch"
	// HeaderTaskDigest, on the terminal reply to a durable task, is the digest of the
	// task, because several tasks may have the same id; see docs/nats-binding.md.
	HeaderTaskDigest = "Aee-Task-Digest"
)

// dispatch decodes a message and routes it: to the checks, or to reject. It must not
// block, so checks that read a store run on other goroutines.
func (l *lane) dispatch(hold *hold) {
	msg := &nats.Msg{Subject: hold.Subject, Data: hold.Data, Header: hold.Header}
	if isCBOR(msg) {
		l.inBackground(hold, func() {
			if env, cbor, err := l.decode(msg); err != nil {
				l.reject(hold, l.salvage(err), cbor, peerError(err))
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
		l.workOn(hold.tally, func() { l.reject(hold, l.salvage(err), cbor, peerError(err)) })
	case kick, env.Sig != nil && l.host.node.asksSeen(env, true), slow(l.host.node.cfg.Verifier, env):
		// Reads the run, or verifies a slow signature.
		l.inBackground(hold, func() { l.check(hold, env, cbor) })
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

// inBackground runs f on its own goroutine and counts the message as waiting
// meanwhile.
func (l *lane) inBackground(hold *hold, f func()) {
	l.countWaiting(nil, 1)
	l.workOn(hold.tally, func() {
		f()
		l.countWaiting(nil, -1)
	})
}

// countWaiting adds n to the number of tasks that are drawn and not begun; r, if not
// nil, is counted once.
func (l *lane) countWaiting(r *Run, n int64) {
	if r == nil || r.waiting.Swap(n > 0) != (n > 0) {
		l.waiting.Add(n)
	}
}

// check admits or refuses a valid envelope by the rules of the live lane, but with the
// time at which the server stored it in place of now. An admitted task waits in the
// agent's queue, together with the live tasks.
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
		l.workOn(r.tally, func() { l.reject(hold, t.Envelope, cbor, problem) })
		return
	}
	l.observe(PointDelivered, r.id)
	if r.stored == nil && l.delayEarly(r) {
		return
	}
	if mine := l.has(r.id.Run); mine != nil && !intents.IsCommand(t.Envelope.Intent) {
		l.workOn(r.tally, func() { l.redelivered(mine, hold) })
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
			l.workOn(r.tally, func() { l.reject(hold, t.Envelope, cbor, peerError(err)) })
			return
		}
	}
	if r.stored == nil && l.delayOverQuota(r) {
		return
	}
	l.enqueue(r)
}

// enqueue puts a task into the agent's queue, and runs a command at once.
func (l *lane) enqueue(r *Run) {
	h, t, hold := l.host, r.task, r.hold
	command := intents.IsCommand(t.Envelope.Intent)
	if !command {
		if mine := l.enlist(r); mine != nil {
			l.workOn(r.tally, func() { l.redelivered(mine, hold) })
			return
		}
	}
	t.span = h.node.tel.startTask(t, hold.Header)
	if command {
		l.workOn(r.tally, func() { l.command(hold, t) })
		return
	}
	r.refusal = t.refusal()
	l.countWaiting(r, 1)
	h.running.add(t)
	if !l.await(t) {
		l.counted.add(hold.Seq)
		l.nakUnbegun(t, 250*time.Millisecond)
	}
}

// delayEarly naks a task that is to begin later (requires.not_before), and reports
// whether it did.
func (l *lane) delayEarly(r *Run) bool {
	_ = r.task.readRequires() // an error in it is answered when the run is claimed
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
		pause = min(pause, time.Second) // the run's record may be written soon
	}
	l.nak(r.hold, pause)
	return true
}

// maxEarlyDelay is the longest delay of one nak for a task that is to begin later.
const maxEarlyDelay = 10 * time.Minute

// resumed looks up the run that the message resumes. The task is read from the run's
// record, where its signature was verified, and not from the message's body.
func (l *lane) resumed(r *Run) error {
	id := r.hold.Header.Get(HeaderRun)
	if id == "" {
		return nil
	}
	rec, err := l.cfg.States.Get(l.ctx, state.ID{Entity: l.host.Entity, Run: id})
	if errors.Is(err, state.ErrNotFound) {
		return nil // then it is an ordinary task
	}
	if err != nil {
		return err
	}
	c, err := l.records.read(rec)
	if err != nil || c.Mesh.Task == nil {
		return err
	}
	env, err := envelope.ParseLimits(c.Mesh.Task, l.host.node.limits)
	if err != nil {
		return err
	}
	t := r.task
	if env.ID != t.Envelope.ID {
		return nil // the header is unsigned: this is another, ordinary task
	}
	r.id.Run, r.stored = id, c
	t.Envelope, t.KeyID, t.cbor = capped(env, envelope.Priority(c.Mesh.Priority)), c.Mesh.KeyID, c.Mesh.CBOR
	return nil
}

// stale refuses a task whose ts differs by more than the skew bound from the time at
// which the server stored it. For a task that was to begin later, and for a dead
// letter that an operator retries, that time may be long after ts, but not longer than
// runs are kept, because the kept run is what refuses a second one. It is called for
// tasks without a run only.
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
	return peerError(err)
}

// redelivered handles a message for a run that this worker already has: its lease had
// ended, because the worker was suspended or cut off, and the server delivered it
// again. If this worker still owns the run, the run goes on under the new delivery.
func (l *lane) redelivered(r *Run, hold *hold) {
	r.verify(l.ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.end != nil || r.dropped || r.hold.Seq != hold.Seq:
		l.nak(hold, time.Second)
		return
	case r.tally.none(): // this worker has the run, and does nothing for it
		l.host.log.Error("a run without work was given up", "run", r.id.Run, "id", r.task.Envelope.ID)
		r.dropped = true
		r.stop(ErrLost)
		l.unlist(r)
		l.dropHold(r.hold)
		l.nak(hold, 0)
		return
	}
	l.dropHold(r.hold)
	l.mu.Lock()
	hold.tally = r.tally
	l.mu.Unlock()
	r.hold = hold
}

// salvage makes an envelope of the readable parts of a broken message.
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

// storeTimeout bounds a request to a store that has no other limit.
const storeTimeout = 10 * time.Second

package mesh

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/quota"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// deliveries admits, delays or refuses the messages that the work queue delivers to a lane.
type deliveries struct {
	*holdings
	lane    *lane
	replies *replyWriter
	counted quota.Counted
	waiting atomic.Int64 // drawn and not begun
}

// dispatch decodes a message and routes it: to the checks, or to reject. It must not
// block, so checks that read a store run on other goroutines.
func (ds *deliveries) dispatch(hold *hold) {
	msg := &nats.Msg{Subject: hold.Subject, Data: hold.Data, Header: hold.Header}
	if wire.IsCBOR(msg) {
		ds.inBackground(hold, func() {
			if env, cbor, err := wire.Receive(msg, ds.host.node.limits); err != nil {
				ds.rejectMalformed(hold, cbor, err)
			} else if err := env.Validate(); err != nil {
				// Config.Limits permit more than the default limits, by which taskJSON writes the record.
				ds.reject(hold, env, cbor, envelope.Errorf(envelope.CodeInvalidEnvelope, "a durable task is stored as JSON, and this one cannot be: %w", err))
			} else {
				ds.check(hold, env, cbor)
			}
		})
		return
	}
	env, cbor, err := wire.Receive(msg, ds.host.node.limits)
	kick := hold.Header.Get(wire.HeaderRun) != ""
	switch {
	case err != nil:
		ds.workOn(hold.tally, func() { ds.rejectMalformed(hold, cbor, err) })
	case kick, env.Sig != nil && ds.host.node.asksSeen(env, true), slow(ds.host.node.cfg.Verifier, env):
		// Reads the run, or verifies a slow signature.
		ds.inBackground(hold, func() { ds.check(hold, env, cbor) })
	default:
		ds.check(hold, env, cbor)
	}
}

// inBackground runs f on its own goroutine and counts the message as waiting
// meanwhile.
func (ds *deliveries) inBackground(hold *hold, f func()) {
	ds.countWaiting(nil, 1)
	ds.workOn(hold.tally, func() {
		f()
		ds.countWaiting(nil, -1)
	})
}

// countWaiting adds n to the number of tasks that are drawn and not begun; r, if not
// nil, is counted once.
func (ds *deliveries) countWaiting(r *Run, n int64) {
	if r == nil || r.waiting.Swap(n > 0) != (n > 0) {
		ds.waiting.Add(n)
	}
}

// check admits or refuses a valid envelope by the rules of the live lane, but with the
// time at which the server stored it in place of now. An admitted task waits in the
// agent's queue, together with the live tasks.
func (ds *deliveries) check(hold *hold, env *envelope.Envelope, cbor bool) {
	h := ds.host
	t := &Task{Envelope: env, host: h, cbor: cbor}
	r := newRun(ds.lane, t, hold)
	t.queued = ds.clock.past(hold.Stored)

	if err := ds.resumed(r); err != nil {
		ds.nakFailed(r, err)
		return
	}
	var problem *envelope.Error
	if r.stored == nil {
		problem, _ = admission{t}.admit()
	}
	if problem != nil {
		ds.workOn(r.tally, func() { ds.refuse(r, problem) })
		return
	}
	ds.admitted(r)
}

// refuse rejects a message that this worker does not admit, unless its run has a record: then
// another worker has admitted the task, for example because it knows the sender's key. Such a run
// goes on. If it has ended and only its reply is stored, the message is acked. A dead letter that an
// operator tries again is another message of its run.
func (ds *deliveries) refuse(r *Run, problem *envelope.Error) {
	rec, err := r.read(ds.ctx)
	if err == nil && rec != nil {
		err = ds.resume(r, *rec, func(c *state.Checkpoint) bool {
			return c.Mesh.Work == r.hold.Seq || r.hold.retryID() != "" && r.isOf(rec, c)
		})
	}
	switch {
	case err != nil:
		ds.nakFailed(r, err)
	case r.stored != nil:
		ds.admitted(r)
	case rec != nil && rec.End != nil && rec.End.Work == r.hold.Seq:
		ds.endedBare(r, *rec, problem)
	default:
		ds.reject(r.hold, r.task.Envelope, r.task.cbor, problem)
	}
}

// endedBare acks the message of a run that has ended without a document, and announces its
// reply, as the worker that ended it may have died before it did so. A message with another
// task is rejected with the problem.
func (ds *deliveries) endedBare(r *Run, rec state.Record, problem *envelope.Error) {
	c, err := ds.records.read(rec)
	if err != nil {
		ds.nakFailed(r, err)
		return
	}
	if same, _ := r.sameTask(&rec, c); !same {
		ds.reject(r.hold, r.task.Envelope, r.task.cbor, problem)
		return
	}
	r.mu.Lock()
	r.found(&rec, c)
	r.mu.Unlock()
	ds.lane.applyVerdict(r, run.Ended, nil)
}

// admitted queues an admitted task, or delays it.
func (ds *deliveries) admitted(r *Run) {
	t, hold, cbor := r.task, r.hold, r.task.cbor
	ds.cfg.observe(PointDelivered, r.id)
	if r.stored == nil && ds.delayEarly(r) {
		return
	}
	if mine := ds.has(r.id.Run); mine != nil && !intents.IsCommand(t.Envelope.Intent) {
		ds.workOn(r.tally, func() { ds.redelivered(mine, r) })
		return
	}
	if r.stored == nil {
		switch err := ds.firstInMesh(ds.ctx, r); {
		case errors.Is(err, errLater):
			ds.nak(hold, laterPause)
			return
		case err != nil:
			ds.workOn(r.tally, func() { ds.reject(hold, t.Envelope, cbor, fault.ForPeer(err)) })
			return
		}
	}
	if r.stored == nil && ds.delayOverQuota(r) {
		return
	}
	ds.enqueue(r)
}

// enqueue puts a task into the agent's queue, and runs a command at once. A task with a chain of
// delegations that this worker does not accept may have begun, like one that it does not admit: see
// refuse.
func (ds *deliveries) enqueue(r *Run) {
	t := r.task
	if intents.IsCommand(t.Envelope.Intent) {
		ds.line(r)
		return
	}
	r.refusal = admission{t}.refusal()
	if r.refusal == nil || r.stored != nil || t.handed != nil || !delegated.Claimed(t.required(requires.Handoff)) {
		ds.line(r)
		return
	}
	ds.countWaiting(nil, 1)
	ds.workOn(r.tally, func() {
		defer ds.countWaiting(nil, -1)
		rec, err := r.read(ds.ctx)
		if err == nil && rec != nil {
			err = ds.resume(r, *rec, func(c *state.Checkpoint) bool { return r.isOf(rec, c) })
		}
		if err != nil {
			ds.nakFailed(r, err)
			return
		}
		if r.stored != nil {
			r.refusal = admission{t}.refusal()
		}
		ds.line(r)
	})
}

// line puts a task that has been checked into the agent's queue, and runs a command at once.
func (ds *deliveries) line(r *Run) {
	h, t, hold := ds.host, r.task, r.hold
	command := intents.IsCommand(t.Envelope.Intent)
	if !command {
		if mine := ds.enlist(r); mine != nil {
			ds.workOn(r.tally, func() { ds.redelivered(mine, r) })
			return
		}
	}
	t.span = t.startSpan(hold.Header)
	if command {
		ds.workOn(r.tally, func() { ds.lane.commands.queued(hold, t) })
		return
	}
	ds.countWaiting(r, 1)
	h.track(t)
	if !ds.await(r) {
		ds.counted.Add(hold.Seq)
		r.nakUnbegun(250 * time.Millisecond)
	}
}

// delayEarly naks a task that is to begin later (requires.not_before), and reports
// whether it did.
func (ds *deliveries) delayEarly(r *Run) bool {
	_ = r.task.readRequires() // an error in it is answered when the run is claimed
	at := r.task.notBefore()
	if at.IsZero() {
		return false
	}
	left := at.Sub(ds.clock.now())
	if left <= 0 {
		return false
	}
	pause := min(left, maxEarlyDelay)
	if r.hold.Header.Get(wire.HeaderRun) != "" && r.hold.Delivered <= 3 {
		pause = min(pause, time.Second) // the run's record may be written soon
	}
	ds.nak(r.hold, pause)
	return true
}

// maxEarlyDelay is the longest delay of one nak for a task that is to begin later.
const maxEarlyDelay = 10 * time.Minute

// resumed looks up the run that the message resumes. The header is unsigned: the message must have
// the task of the record, as one that a worker has queued.
func (ds *deliveries) resumed(r *Run) error {
	id := r.hold.Header.Get(wire.HeaderRun)
	if id == "" || len(id) > state.MaxRun {
		return nil
	}
	rec, err := ds.cfg.States.Get(ds.ctx, state.ID{Entity: ds.host.Entity, Run: id})
	if errors.Is(err, state.ErrNotFound) {
		return nil // then it is an ordinary task
	}
	if err != nil {
		return err
	}
	return ds.resume(r, rec, func(c *state.Checkpoint) bool { return r.isOf(&rec, c) })
}

// resume lets the message resume the run of a record if says returns true for the record's
// checkpoint. The task is read from the record, whose writer has verified its signature, and not
// from the message's body.
func (ds *deliveries) resume(r *Run, rec state.Record, says func(*state.Checkpoint) bool) error {
	c, err := ds.records.read(rec)
	if err != nil || c.Mesh.Task == nil {
		return err
	}
	env, err := envelope.ParseStored(c.Mesh.Task)
	if err != nil {
		return err
	}
	t := r.task
	if env.ID != t.Envelope.ID || !says(c) {
		return nil // this is another, ordinary task
	}
	r.id.Run, r.stored = rec.ID.Run, c
	if k := c.Mesh.Step.Kind; c.Mesh.Work == r.hold.Seq || k == state.StepImport || k == state.StepFork {
		rec.Data = nil // c has it
		r.arrived = &rec
	} // else the record is about to change: see records.requeue
	t.read = false
	t.Envelope, t.KeyID, t.cbor = capped(env, envelope.Priority(c.Mesh.Priority)), c.Mesh.KeyID, c.Mesh.CBOR
	return nil
}

// checkTime refuses a task whose ts differs by more than the skew bound from the time at
// which the server stored it. For a task that was to begin later, and for a dead
// letter that an operator retries, that time may be long after ts, but not longer than
// runs are kept, because the kept run is what refuses a second one. The sweep of a store
// that is nearly full deletes ended runs earlier; a captured copy of such a task can then
// be done again (docs/threat-model.md, "Replay"). It is called for tasks without a run only.
func (ds *deliveries) checkTime(r *Run, retried bool) *envelope.Error {
	skew := ds.host.node.cfg.Skew
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
	return fault.ForPeer(err)
}

// redelivered handles again, a second delivery of the message of r, which this worker already has:
// the worker was suspended or cut off, so the message's lease ended and the server delivered it
// again. If this worker still owns the run, the run goes on under the new delivery.
func (ds *deliveries) redelivered(r, again *Run) {
	hold := again.hold
	r.verify(ds.ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.end != nil || r.dropped:
		ds.nak(hold, time.Second)
		return
	case r.hold.Seq != hold.Seq:
		ds.workOn(hold.tally, func() { ds.second(again) })
		return
	case r.tally.none(): // this worker has the run, and does nothing for it
		ds.host.log.Error("a run without work was given up", "run", r.id.Run, "id", r.task.Envelope.ID)
		r.dropped = true
		r.stop(ErrLost)
		ds.unlist(r)
		ds.dropHold(r.hold)
		ds.nak(hold, 0)
		return
	}
	ds.dropHold(r.hold)
	ds.mu.Lock()
	hold.tally = r.tally
	ds.mu.Unlock()
	r.hold = hold
}

// second handles a second message of a run that this worker has. It acks or rejects the
// message if the run's record says so. Else it naks it: the record is not written yet, or is
// about to change.
func (ds *deliveries) second(r *Run) {
	rec, err := r.read(ds.ctx)
	v := run.Mine
	if err == nil && rec != nil {
		var c *state.Checkpoint
		if c, err = ds.records.read(*rec); err == nil && c.Mesh.Task != nil {
			v, _, err = r.judge(ds.ctx, rec, c)
		}
	}
	if err != nil || v == run.Foreign || v == run.Reused || v == run.Later {
		ds.lane.applyVerdict(r, v, err)
		return
	}
	ds.nak(r.hold, time.Second)
}

package calls

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/tracing"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// durable sends a call over the durable lane, or finds the task that an earlier call with
// the same key sent.
func (o *outgoing) durable(ctx context.Context, task *envelope.Envelope) error {
	task.ID = o.id(o.c.Key)
	o.a.TaskID = task.ID
	timeout, until := o.times(ctx, o.began())
	notReady := o.ready(task, timeout, true)
	digest, known := wire.TaskDigest(task), o.sentDigests(task.ID)
	var was *envelope.Envelope
	sent := o.sentDurably()
	if o.Run.Restored || sent {
		var ended bool
		was, ended = o.sentBefore(ctx, task, known)
		if ended || notReady != nil { // the receiver may have answered while the run did not wait
			if answer, err := o.Answers.First(ctx, o.Stores.Replies, state.Wait{Entity: task.To, TaskID: task.ID}, task.From, task.Corr); err == nil && answer != nil {
				o.answered(task.ID)
				return takeReply(o.a, answer)
			}
		}
	}
	if notReady != nil {
		if sent { // its time is over
			o.cancel(state.Call{ID: task.ID, To: task.To})
		}
		return notReady
	}
	if was == nil && len(known) > 0 && !slices.Contains(known, digest) {
		was = o.queuedBefore(ctx, task, known)
	}
	if was == nil && digest != "" {
		o.digests = []string{digest}
	}
	recorded := slices.ContainsFunc(o.Run.openCalls(o.c.Key), func(c state.Call) bool { return c.ID == task.ID }) // those of earlier attempts have other ids
	again := o.Run.Record.markSent(task.ID)
	if err := o.begin(ctx, was == nil && !again && !recorded && !o.counted); err != nil {
		return err
	}
	wait, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	defer o.watchDeadlock(task)()
	if !o.c.Uninterrupted {
		var end context.CancelCauseFunc
		wait, end = context.WithCancelCause(wait)
		defer end(context.Canceled)
		defer o.interrupt(end)()
		if o.c.OnStream == nil { // a caller that receives the stream keeps waiting
			defer o.watchCallee(wait, end, task)()
		}
	}
	wait, span := tracing.StartSend(o.Tracer, wait, task)
	opts := client.ResultOptions{OnStream: o.c.OnStream, Again: again || o.Run.Restored, Sent: known}
	var reply *envelope.Envelope
	err := o.Port.Persist(wait, func() (err error) {
		switch {
		case was != nil:
			reply, err = o.Client.Await(wait, was, opts)
		case o.Sender.Line() == 0: // a copy would wait in the connection's buffer, and be stored first when it is stale
			return nats.ErrConnectionReconnecting
		default:
			if at, _ := task.Time(); o.Now().Sub(at).Abs() >= time.Second { // after an outage the receiver would refuse it as stale
				task.TS, task.Sig = tsOf(o.Now()), nil
				if err := o.sign(task, true); err != nil {
					return err
				}
			}
			_, reply, err = o.Client.Perform(wait, task, client.SubmitOptions{}, opts)
		}
		opts.Again = true
		return err
	})
	tracing.EndSend(span, err)
	o.a.Envelope = reply
	switch {
	case reply != nil:
		o.answered(task.ID)
		return err
	case err == nil, errors.Is(err, ErrInterrupted):
		return err
	case errors.Is(err, errCalleeWaits):
		return o.waitsForCallee(task, until)
	}
	err = sender.Failure(task, err)
	if fault.IsCode(err, envelope.CodeTimeout) && !o.taskBegun(task, sender.Grace/2) {
		err = envelope.Errorf(envelope.CodeTimeout, "%s had not begun the task by its deadline: the agent has no worker, or all its places are taken, perhaps by tasks that wait for this one", task.To).WithCause(err)
	}
	o.cancel(state.Call{ID: task.ID, To: task.To})
	return err
}

// began returns when the call was first sent, by this owner of the run or by an earlier one:
// its timeout counts from then.
func (o *outgoing) began() time.Time {
	for _, call := range o.Run.openCalls(o.c.Key) {
		if call.ID == o.a.TaskID && !call.At.IsZero() {
			return o.a.Began.Add(min(0, call.At.Sub(o.Now()))) // At is by the server's clock
		}
	}
	return o.a.Began
}

// circleLook is the number of leases after which watchDeadlock checks whether a durable call
// has begun. On the durable lane a call that would deadlock is not refused, because a worker
// draws a task only when a place is free.
const circleLook = 4

// watchDeadlock logs a warning if a durable call to an agent that itself waits for the call
// (the task's own agent, or one above it in the tree) has not begun after circleLook leases. Such a
// call may be deadlocked, and then only its timeout ends it. The returned function stops the
// watch.
func (o *outgoing) watchDeadlock(call *envelope.Envelope) func() {
	if !o.Tree.Waits(call.To) {
		return func() {}
	}
	timer := time.AfterFunc(circleLook*o.Run.Lease, func() {
		if !o.taskBegun(call, sched.LookTimeout) {
			o.Log.Warn("possible deadlock: the called agent itself waits for this call and has not begun it; if all its places are taken by waiting tasks, raise its concurrency",
				"id", o.Envelope.ID, "corr", o.Envelope.Corr, "to", call.To, "task", call.ID)
		}
	})
	return func() { timer.Stop() }
}

// taskBegun reports whether a worker has begun a task. It returns true if the store does not
// say within a time.
func (o *outgoing) taskBegun(task *envelope.Envelope, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_, err := o.Stores.States.Get(ctx, state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)})
	return !errors.Is(err, state.ErrNotFound)
}

// sentBefore returns the task that an earlier owner of the run sent under the same id, if a
// worker has begun it and its record can be read here. The caller then waits for the answer
// to that task, even if the new task differs. If sentBefore returns nil, the new task is
// sent, unless [outgoing.queuedBefore] finds the earlier one; if it equals the earlier one, it has
// no second effect. known are the digests of what was sent: a task that the agent sent before its
// key was valid is unsigned. ended: the called run has ended and only its reply is stored, so the earlier
// task is not known, or the record cannot be read here.
func (o *outgoing) sentBefore(ctx context.Context, task *envelope.Envelope, known []string) (was *envelope.Envelope, ended bool) {
	d := o.Stores
	rec, err := d.States.Get(ctx, state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)})
	if err != nil {
		return nil, !errors.Is(err, state.ErrNotFound)
	}
	if rec.End != nil {
		return nil, true
	}
	codec := d.Codec
	codec.AcceptClear = true // the record is another agent's, whose workers may have no key
	c, err := codec.Read(rec)
	if err != nil || c.Mesh.Task == nil {
		return nil, false
	}
	was, err = envelope.ParseStored(c.Mesh.Task)
	if err != nil || was.ID != task.ID || was.From != task.From || was.To != task.To || was.ReplyTo != task.ReplyTo || was.Corr != task.Corr {
		return nil, false
	}
	if c.Mesh.KeyID == "" && o.Signer != nil && !o.Signer.Waits() && !slices.Contains(known, wire.TaskDigest(was)) {
		return nil, false // forged: the run signs
	}
	return was, false
}

// sentDigests returns the digests of the tasks that the run has sent under an id, by its
// checkpoint.
func (o *outgoing) sentDigests(id string) []string {
	for _, call := range o.Run.openCalls(o.c.Key) {
		if call.ID == id {
			return call.Sent
		}
	}
	return nil
}

// maxQueued bounds the tasks in the receiver's queue that queuedBefore reads.
const maxQueued = 1000

// queuedBefore returns a task that an earlier owner of the run sent under the same id, and that
// differs from the new one, if it is found in the receiver's queue. The caller then waits for its
// answer: the new task would become a dead letter. known are the digests of what was sent.
func (o *outgoing) queuedBefore(ctx context.Context, task *envelope.Envelope, known []string) *envelope.Envelope {
	ctx, cancel := context.WithTimeout(ctx, sched.LookTimeout)
	defer cancel()
	n := 0
	for msg, err := range o.Stores.Queue.Peek(ctx, string(task.Priority), task.To, 0) {
		if n++; err != nil || n > maxQueued {
			return nil // both are in the queue then, and the answer to either counts
		}
		was, _, err := wire.Decode(&nats.Msg{Data: msg.Data, Header: msg.Header}, o.Answers.Limits)
		if err == nil && was.ID == task.ID && slices.Contains(known, wire.TaskDigest(was)) {
			return was
		}
	}
	return nil
}

// interrupt ends the wait for a call with [ErrInterrupted] when the run is to stop here, until
// the returned function is called.
func (o *outgoing) interrupt(end context.CancelCauseFunc) (release func()) {
	return o.Run.Port.OnStop(func() { end(ErrInterrupted) })
}

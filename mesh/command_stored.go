package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// applyStored applies an order to the records of runs that no worker owns, or whose
// owner does not answer; the compare-and-swap decides between workers. alone is set
// for an order from the work queue: no reachable worker owns the run, so the order
// also applies to runs of silent owners. known are runs of a corr that are left out.
func (cs *commands) applyStored(ctx context.Context, o *orders.Order, alone bool, known []string) (out orders.Outcome) {
	if id := o.RunID(cs.host.Entity); id != "" {
		out = cs.applyTo(ctx, state.ID{Entity: cs.host.Entity, Run: id}, o, alone)
		return out
	}
	digest := jetstream.CorrDigest(o.Corr)
	for rec, err := range cs.records.open(ctx) {
		if err != nil {
			out.Refused = envelope.Errorf(envelope.CodeUnavailable, "the runs cannot be listed for now: %w", err)
			return out
		}
		if slices.Contains(known, rec.ID.Run) || rec.Corr != "" && rec.Corr != digest {
			continue
		}
		c, err := cs.records.read(rec)
		if err != nil {
			if problem := refuseUnreadable(cmp.Or(unreadable(err), state.ErrInvalid), err); out.Refused == nil || problem.Retryable {
				problem.Message = "run " + clip.Text(rec.ID.Run, 128) + ": " + problem.Message
				out.Refused = problem
			}
			continue
		}
		if c.Mesh.Task == nil {
			continue
		}
		env, err := envelope.ParseStored(c.Mesh.Task)
		if err != nil || env.Corr != o.Corr {
			continue
		}
		one := cs.applyTo(ctx, rec.ID, o, alone)
		if out.Between = out.Between || one.Between; one.Silent {
			out.Silent = true
			continue
		}
		if one.Refused != nil && one.Refused.Retryable && (!one.Found || one.Later) {
			// The record cannot be read or written, or the run cannot obey yet: else the order would
			// never reach this run. The order does not wait for an agent or a platform that it was
			// forwarded to: that may be gone for good.
			out.Refused = one.Refused
		}
		out.Found, out.Done = out.Found || one.Found, out.Done || one.Done
		out.Runs = append(out.Runs, one.Runs...)
		out.Status = one.Status
	}
	out.Silent = out.Silent && !out.Found
	return out
}

// applyTo applies an order to one record.
func (cs *commands) applyTo(ctx context.Context, id state.ID, o *orders.Order, alone bool) (out orders.Outcome) {
	for range 20 {
		rec, err := cs.cfg.States.Get(ctx, id)
		if errors.Is(err, state.ErrNotFound) {
			if !o.MayReach(nil) {
				out.Refused = orders.Unbound()
				return out
			}
			if !o.Precedes(nil) || o.ID == "" && o.Run == "" {
				return out
			}
			if status, ended := cs.refusedStatus(ctx, o); ended {
				out.Found, out.Status = true, status
				return out
			}
			ended, done, again := cs.cancelScheduled(ctx, state.Record{ID: id}, nil, o)
			if done {
				return ended
			} else if again {
				continue
			}
			if err = cs.note(ctx, id, state.Record{}, nil, o); err == nil {
				out.Did(id.Run, "noted")
				return out
			}
		} else if err == nil {
			var again bool
			if out, again, err = cs.applyToRecord(ctx, rec, o, alone); err == nil && !again {
				return out
			}
		}
		var problem *envelope.Error
		if errors.As(err, &problem) {
			out.Refused = problem
			return out
		}
		if why := unreadable(err); why != nil {
			out.Refused = refuseUnreadable(why, err)
			return out
		}
		if err != nil && !errors.Is(err, state.ErrChanged) {
			out.Refused = envelope.Errorf(envelope.CodeUnavailable, "the run's record cannot be read or written for now: %w", err)
			return out
		}
	}
	out.Refused = envelope.Errorf(envelope.CodeUnavailable, "the run's record changes too fast").WithBackoff(time.Second)
	return out
}

// refuseUnreadable refuses an order because this worker cannot read or write the record of a run.
func refuseUnreadable(why, err error) *envelope.Error {
	code := envelope.CodeInternal
	if why == state.ErrSealed || why == state.ErrNewer { // another worker may be able to
		code = envelope.CodeUnavailable
	}
	return envelope.Errorf(code, "this worker cannot read or write the run's record: %s", why.Error()).WithCause(err)
}

// refusedStatus returns the status of a task that was refused and therefore has no run.
func (cs *commands) refusedStatus(ctx context.Context, o *orders.Order) (status string, ended bool) {
	if o.ID == "" {
		return "", false
	}
	reply, header, err := cs.storedReply(ctx, o.ID)
	switch {
	case err != nil || reply.From != cs.host.Entity:
		return "", false
	case intents.IsCommand(reply.Intent), header.Get(wire.HeaderEpoch) == "" && reply.To != o.From:
		return "", false // of no run, and not to this sender: see replyReader.another
	case reply.Type == envelope.TypeResult:
		return string(aaif.RunCompleted), true
	case reply.Type == envelope.TypeError:
		return string(aaif.RunFailed), true
	}
	return "", false
}

// storedReply returns the last reply that is stored under an id, if it is one to a task of this
// agent and its signature verifies; else [jetstream.ErrNotFound].
func (cs *commands) storedReply(ctx context.Context, id string) (*envelope.Envelope, nats.Header, error) {
	msg, err := cs.cfg.Replies.Last(ctx, cs.host.Entity, id)
	if err != nil {
		return nil, nil, err
	}
	reply, err := cs.host.node.answers.OfMessage(cs.host.Entity, id, msg)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", jetstream.ErrNotFound, err)
	}
	return reply, msg.Header, nil
}

// applyToRecord applies an order to a record that was read. It returns again if the
// record has changed meanwhile.
func (cs *commands) applyToRecord(ctx context.Context, rec state.Record, o *orders.Order, alone bool) (out orders.Outcome, again bool, err error) {
	c, err := cs.records.read(rec)
	if err != nil {
		return out, false, err
	}
	m := &c.Mesh
	if !o.MayReach(c) {
		out.Refused = orders.Unbound()
		return out, false, nil
	}
	if m.Task == nil && !c.Terminal() { // noted commands, and no task yet
		if !o.Precedes(m.Noted) {
			return out, false, nil
		}
		if ended, done, again := cs.cancelScheduled(ctx, rec, c, o); done || again {
			return ended, again, nil
		}
		if err := cs.note(ctx, rec.ID, rec, c, o); err != nil {
			return out, errors.Is(err, state.ErrChanged), err
		}
		out.Did(rec.ID.Run, "noted")
		return out, false, nil
	}
	env, err := c.ReadTask()
	if err != nil {
		return out, false, err
	}
	t := &Task{Envelope: env, KeyID: m.KeyID, host: cs.host, cbor: m.CBOR}
	if !cs.mayCommand(o.From, o.Caller, o.Signed, t) {
		out.Refused = o.MayNot()
		return out, false, nil
	}
	at := run.Stored
	if alone {
		at = run.Silent
	}
	done, err := run.Command(c, cs.orderFor(ctx, o, t), at, cs.clock.now())
	out.Found, out.Status = true, done.Status
	switch {
	case err != nil:
		out.Refused = fault.ForPeer(err)
		out.Later = out.Refused.Code == envelope.CodeUnavailable // and not E_BUSY, of a run that may be paused for long
		return out, false, nil
	case done.Do == run.Already:
		out.Did(rec.ID.Run, done.Status)
		return out, false, nil
	case done.Do == run.AskOwner:
		out.Between = m.Owner == cs.host.id
		out.Silent = !out.Between
		return out, false, nil
	case done.Do == run.Forward:
		return cs.forwardOrder(ctx, c, o, alone), false, nil
	case done.Do == run.ForwardOut:
		return cs.forwardToPlatform(ctx, c, o), false, nil
	case done.Do == run.EndRun:
		t.handed = cs.host.node.handedOf(t, c)
		return cs.cancelStored(ctx, rec, c, t, o, done.Requeue)
	case done.Do != run.Applied:
		return out, false, nil
	}
	if done.Requeue {
		err = cs.goOn(ctx, rec, c)
	} else {
		_, _, err = cs.records.put(ctx, rec.ID, rec.Revision, c)
	}
	if err != nil {
		return out, errors.Is(err, state.ErrChanged), err
	}
	out.Did(rec.ID.Run, done.Status)
	return out, false, nil
}

// forwardToPlatform forwards an order to the platform that runs the run.
func (cs *commands) forwardToPlatform(ctx context.Context, c *state.Checkpoint, o *orders.Order) orders.Outcome {
	out := orders.Outcome{Found: true, Status: string(c.Doc.Status)}
	result, refused := cs.lane.transfers.mover.Forward(ctx, c, &o.Order)
	if refused != nil {
		out.Refused = refused
		return out
	}
	out.Answered(result)
	out.Status, out.Runs = result.Status, []string{c.Doc.RunID}
	return out
}

// cancelScheduled cancels a task that waits for its time, by a record of its end: its
// sender gets the reply at once. It does nothing for other orders, for tasks that are
// not scheduled, and for tasks that will be refused when they are due. rec is the record
// with the commands that are noted for the task, and c its checkpoint; nil: there are none.
func (cs *commands) cancelScheduled(ctx context.Context, rec state.Record, c *state.Checkpoint, o *orders.Order) (out orders.Outcome, done, again bool) {
	if o.Intent != intents.TaskCancel || !o.IsOf(rec.ID) {
		return out, false, false
	}
	s, err := cs.cfg.Queue.FindScheduled(ctx, cs.host.Entity, o.ID)
	if err != nil {
		return out, false, false // noted, then
	}
	env, cbor, err := wire.Receive(&nats.Msg{Data: s.Data, Header: s.Header}, cs.host.node.limits)
	if err != nil || env.ID != o.ID {
		return out, false, false
	}
	t := &Task{Envelope: env, host: cs.host, cbor: cbor}
	r := newRun(cs.lane, t, &hold{Delivery: &jetstream.Delivery{Priority: s.Priority, Data: s.Data, Header: s.Header, Stored: s.Stored}})
	if problem, _ := (admission{t}).admit(); problem != nil {
		return out, false, false
	}
	if !cs.mayCommand(o.From, o.Caller, o.Signed, t) {
		out.Refused = o.MayNot()
		return out, true, false
	}
	// A worker that may not delete the scheduled message relies on the record of the end when the
	// message is delivered. If the store removes the record before, the cancel is noted: notes are renewed.
	if age := cs.cfg.States.MaxAge(ctx); age > 0 && s.Due.After(cs.clock.now().Add(age-orders.NoteTTL)) && errors.Is(cs.cfg.Queue.MayUnschedule(ctx, cs.host.Entity), jetstream.ErrDenied) {
		return out, false, false
	}
	task, err := r.described()
	if err != nil {
		return out, false, false
	}
	if c = c.Clone(); c == nil { // c itself stays as it is: if this fails, the command is noted in it
		c = state.New(cs.host.Entity, o.ID, cs.host.AgentID)
	}
	run.Describe(c, task, cs.clock.now())
	c.Doc.Status, c.Mesh.TaskID, c.Mesh.Noted, c.Mesh.Commands = aaif.RunRunning, o.ID, nil, []string{o.Envelope}
	t.handed, _, _ = cs.host.node.checkHanded(t, s.Stored)
	if out, again, err = cs.cancelStored(ctx, rec, c, t, o, false); err != nil || again {
		return out, false, again
	}
	// A worker with permissions for its own entity only may not delete the scheduled
	// message. The message is then delivered when it is due, and acked, because its run
	// has ended. The reply to the task is stored by now, so this goes on after ctx ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sched.StoreTimeout)
	defer cancel()
	if err := cs.cfg.Queue.Unschedule(ctx, cs.host.Entity, o.ID); err != nil && !errors.Is(err, jetstream.ErrNotFound) && !errors.Is(err, jetstream.ErrDenied) {
		cs.host.log.Warn("cancelled task still scheduled", "run", rec.ID.Run, "err", err)
	}
	return out, true, false
}

// cancelStored cancels a run that no worker owns: it stores the run's last checkpoint
// and its reply. The run's message, if there is one, is acked when it is drawn. If the task was
// delegated, t has its verified chain.
func (cs *commands) cancelStored(ctx context.Context, rec state.Record, c *state.Checkpoint, t *Task, o *orders.Order, requeue bool) (out orders.Outcome, again bool, err error) {
	hold := &hold{Delivery: &jetstream.Delivery{Seq: c.Mesh.Work, Stored: c.Mesh.StoredAt}}
	r := newRun(cs.lane, t, hold)
	r.id.Run = rec.ID.Run
	t.queued = cs.clock.past(c.Mesh.StoredAt)
	if err := t.readRequires(); err != nil {
		return out, false, err
	}
	if t.Streaming() {
		if err := r.readStream(ctx, c); err != nil {
			return out, false, err
		}
		r.stream.Save(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Mesh.Epoch++
	c.Mesh.Owner = cs.host.id
	problem := o.Problem
	if problem == nil {
		problem = run.Cancelled(o.From, o.Reason)
	}
	if err := r.setEnd(c, nil, problem); err != nil {
		return out, false, err
	}
	// If this process dies between the record and the reply, the worker that draws the
	// run's message publishes the reply. So the run needs a message, and not one that
	// another worker is about to ack.
	there := run.No
	if !requeue {
		there, err = cs.records.messageQueued(ctx, rec.Time, c.Mesh.Work, c.Mesh.TaskID)
	}
	if err == nil && there != run.Yes {
		_, err = cs.records.requeue(ctx, c, 0) // revision 0: the record that names the message is written below
	}
	if err != nil {
		return out, false, err
	}
	rev, _, err := cs.records.put(ctx, rec.ID, rec.Revision, c)
	if err != nil {
		return out, errors.Is(err, state.ErrChanged), err
	}
	cs.lane.waits.Remove(rec.ID.Run)
	r.keep(c, rev)
	r.wrote = true
	t.claim()
	if err := cs.replies.publishOutcome(r); err != nil {
		// The next worker to draw the message stores it. Sweeps leave ended runs alone.
		cs.host.log.Warn("reply not stored", "run", r.id.Run, "err", err)
	}
	cs.work.Go(func() { cs.host.calls.Stop(c.Mesh.Calls) })
	out.Did(rec.ID.Run, string(aaif.RunFailed))
	return out, false, nil
}

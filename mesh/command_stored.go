package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// applyStored applies an order to the records of runs that no worker owns, or whose
// owner does not answer; the compare-and-swap decides between workers. alone is set
// for an order from the work queue: no reachable worker owns the run, so the order
// also applies to runs of silent owners.
func (l *lane) applyStored(ctx context.Context, o *order, alone bool) (out outcome) {
	if id := o.runID(l.host.Entity); id != "" {
		out = l.applyTo(ctx, state.ID{Entity: l.host.Entity, Run: id}, o, alone)
		return out
	}
	for rec, err := range l.open(ctx) {
		if err != nil {
			out.refused = envelope.Errorf(envelope.CodeUnavailable, "the runs cannot be listed for now: %w", err)
			return out
		}
		c, err := l.records.read(rec)
		if err != nil || c.Mesh.Task == nil {
			continue
		}
		env, err := envelope.Parse(c.Mesh.Task)
		if err != nil || env.Corr != o.Corr {
			continue
		}
		one := l.applyTo(ctx, rec.ID, o, alone)
		out.found, out.done = out.found || one.found, out.done || one.done
		out.runs = append(out.runs, one.runs...)
		out.status = one.status
	}
	return out
}

// applyTo applies an order to one record.
func (l *lane) applyTo(ctx context.Context, id state.ID, o *order, alone bool) (out outcome) {
	for range 20 {
		rec, err := l.cfg.States.Get(ctx, id)
		if errors.Is(err, state.ErrNotFound) {
			if !o.mayReach(nil) {
				out.refused = unboundOrder()
				return out
			}
			if !o.precedes(nil) || o.ID == "" && o.Run == "" {
				return out
			}
			if status, ended := l.refusedStatus(ctx, o); ended {
				out.found, out.status = true, status
				return out
			}
			ended, done, again := l.cancelScheduled(ctx, id, o)
			if done {
				return ended
			} else if again {
				continue
			}
			if err = l.note(ctx, id, 0, nil, o); err == nil {
				out.did(id.Run, "noted")
				return out
			}
		} else if err == nil {
			var again bool
			if out, again, err = l.applyToRecord(ctx, rec, o, alone); err == nil && !again {
				return out
			}
		}
		var problem *envelope.Error
		if errors.As(err, &problem) {
			out.refused = problem
			return out
		}
		if err != nil && !errors.Is(err, state.ErrChanged) {
			out.refused = envelope.Errorf(envelope.CodeUnavailable, "the run's record cannot be read or written for now: %w", err)
			return out
		}
	}
	out.refused = envelope.Errorf(envelope.CodeUnavailable, "the run's record changes too fast").WithBackoff(time.Second)
	return out
}

// refusedStatus returns the status of a task that was refused and therefore has no run.
func (l *lane) refusedStatus(ctx context.Context, o *order) (status string, ended bool) {
	if o.ID == "" {
		return "", false
	}
	msg, err := l.cfg.Replies.Last(ctx, l.host.Entity, o.ID)
	if err != nil {
		return "", false
	}
	reply, _, err := l.host.node.decode(&nats.Msg{Data: msg.Data, Header: msg.Header})
	switch {
	case err != nil || reply.From != l.host.Entity:
		return "", false
	case intents.IsCommand(reply.Intent), msg.Header.Get(HeaderEpoch) == "" && reply.To != o.From:
		return "", false // of no run, and not to this sender: see replyReader.another
	case reply.Type == envelope.TypeResult:
		return string(aaif.RunCompleted), true
	case reply.Type == envelope.TypeError:
		return string(aaif.RunFailed), true
	}
	return "", false
}

// applyToRecord applies an order to a record that was read. It returns again if the
// record has changed meanwhile.
func (l *lane) applyToRecord(ctx context.Context, rec state.Record, o *order, alone bool) (out outcome, again bool, err error) {
	c, err := l.records.read(rec)
	if err != nil {
		return out, false, err
	}
	m := &c.Mesh
	if !o.mayReach(c) {
		out.refused = unboundOrder()
		return out, false, nil
	}
	if m.Task == nil && !c.Terminal() { // noted commands, and no task yet
		if !o.precedes(m.Noted) {
			return out, false, nil
		}
		if err := l.note(ctx, rec.ID, rec.Revision, c, o); err != nil {
			return out, errors.Is(err, state.ErrChanged), err
		}
		out.did(rec.ID.Run, "noted")
		return out, false, nil
	}
	env, err := c.ReadTask()
	if err != nil {
		return out, false, err
	}
	t := &Task{Envelope: env, KeyID: m.KeyID, host: l.host, cbor: m.CBOR}
	if !l.mayCommand(o.From, o.signed, t) {
		out.refused = denied(o)
		return out, false, nil
	}
	at := run.Stored
	if alone {
		at = run.Silent
	}
	done, err := run.Command(c, l.orderFor(o, t), at, l.clock.now())
	out.found, out.status = true, done.Status
	switch {
	case err != nil:
		out.refused = peerError(err)
		return out, false, nil
	case done.Do == run.Already:
		out.did(rec.ID.Run, done.Status)
		return out, false, nil
	case done.Do == run.AskOwner:
		out.silent = m.Owner != l.host.id
		return out, false, nil
	case done.Do == run.Forward:
		return l.forwardOrder(ctx, c, o), false, nil
	case done.Do == run.ForwardOut:
		return l.forwardToPlatform(ctx, c, o), false, nil
	case done.Do == run.EndRun:
		return l.cancelStored(ctx, rec, c, t, o, done.Requeue)
	case done.Do != run.Applied:
		return out, false, nil
	}
	rev, _, err := l.records.put(ctx, rec.ID, rec.Revision, c)
	if err != nil {
		return out, errors.Is(err, state.ErrChanged), err
	}
	out.did(rec.ID.Run, done.Status)
	if done.Requeue {
		if _, err := l.requeueWaiting(ctx, c, rev); err != nil {
			l.host.log.Warn("resumed run not queued, the sweep will do it", "run", rec.ID.Run, "err", err)
		}
	}
	return out, false, nil
}

// cancelScheduled cancels a task that waits for its time, by a record of its end: its
// sender gets the reply at once. It does nothing for other orders, for tasks that are
// not scheduled, and for tasks that will be refused when they are due.
func (l *lane) cancelScheduled(ctx context.Context, id state.ID, o *order) (out outcome, done, again bool) {
	if o.Intent != intents.TaskCancel || o.ID == "" {
		return out, false, false
	}
	s, err := l.cfg.Queue.FindScheduled(ctx, l.host.Entity, o.ID)
	if err != nil {
		return out, false, false // noted, then
	}
	env, cbor, err := l.host.node.decode(&nats.Msg{Data: s.Data, Header: s.Header})
	if err != nil || env.ID != o.ID || bounded(env) != nil {
		return out, false, false
	}
	t := &Task{Envelope: env, host: l.host, cbor: cbor}
	r := newRun(l, t, &hold{Delivery: &jetstream.Delivery{Priority: s.Priority, Data: s.Data, Header: s.Header, Stored: s.Stored}})
	if problem, _ := t.admit(); problem != nil {
		return out, false, false
	}
	if !l.mayCommand(o.From, o.signed, t) {
		out.refused = envelope.Errorf(envelope.CodeDenied, "%s may not command this task", clip.Text(o.From, 128))
		return out, true, false
	}
	task, err := r.described()
	if err != nil {
		return out, false, false
	}
	c := state.New(l.host.Entity, o.ID, l.host.AgentID)
	run.Describe(c, task, l.clock.now())
	c.Mesh.Commands = []string{o.Envelope}
	if out, again, err = l.cancelStored(ctx, state.Record{ID: id}, c, t, o, false); err != nil || again {
		return out, false, again
	}
	// A worker with permissions for its own entity only may not delete the scheduled
	// message. The message is then delivered when it is due, and acked, because its run
	// has ended. The reply to the task is stored by now, so this goes on after ctx ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := l.cfg.Queue.Unschedule(ctx, l.host.Entity, o.ID); err != nil && !errors.Is(err, jetstream.ErrNotFound) && !errors.Is(err, jetstream.ErrDenied) {
		l.host.log.Warn("cancelled task still scheduled", "run", id.Run, "err", err)
	}
	return out, true, false
}

// cancelStored cancels a run that no worker owns: it stores the run's last checkpoint
// and its reply. The run's message, if there is one, is acked when it is drawn.
func (l *lane) cancelStored(ctx context.Context, rec state.Record, c *state.Checkpoint, t *Task, o *order, requeue bool) (out outcome, again bool, err error) {
	hold := &hold{Delivery: &jetstream.Delivery{Seq: c.Mesh.Work, Stored: c.Mesh.StoredAt}}
	r := newRun(l, t, hold)
	r.id.Run = rec.ID.Run
	t.queued = l.clock.past(c.Mesh.StoredAt)
	err = t.readRequires()
	t.handed, _, _ = l.host.node.checkHanded(t)
	if err != nil {
		return out, false, err
	}
	if t.Streaming() {
		if err := r.readStream(ctx, c); err != nil {
			return out, false, err
		}
		r.stream.save(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Mesh.Epoch++
	c.Mesh.Owner = l.host.id
	problem := o.problem
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
		there, err = l.messageQueued(ctx, rec.Time, c.Mesh.Work)
	}
	if err == nil && there != run.Yes {
		_, err = l.requeueWaiting(ctx, c, 0) // revision 0: the record that names the message is written below
	}
	if err != nil {
		return out, false, err
	}
	rev, _, err := l.records.put(ctx, rec.ID, rec.Revision, c)
	if err != nil {
		return out, errors.Is(err, state.ErrChanged), err
	}
	r.keep(c, rev)
	r.wrote = true
	t.claim()
	if err := l.publishOutcome(r); err != nil {
		// The next worker to draw the message, or a sweep, stores it.
		l.host.log.Warn("reply not stored", "run", r.id.Run, "err", err)
	}
	l.work.Go(func() { l.stopCalls(c) })
	out.did(rec.ID.Run, string(aaif.RunFailed))
	return out, false, nil
}

// requeueWaiting requeues the message of a run that goes on, whose record is c at
// revision rev, and writes the message's sequence into the record for the sweep. fresh
// reports whether the message is new.
func (l *lane) requeueWaiting(ctx context.Context, c *state.Checkpoint, rev uint64) (fresh bool, err error) {
	if rev > 0 {
		l.observe(PointRequeue, c.ID())
	}
	stored, err := requeueRun(ctx, l.cfg.Queue, c)
	if err != nil || rev == 0 {
		return err == nil, err
	}
	next := c.Clone()
	next.Mesh.Work = stored.Seq
	// If a worker has claimed the run meanwhile, the sequence is no longer needed.
	if _, _, err := l.records.put(ctx, next.ID(), rev, next); err != nil && !errors.Is(err, state.ErrChanged) {
		l.host.log.Debug("message of a run not noted", "run", c.Doc.RunID, "err", err)
	}
	return !stored.Duplicate, nil
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

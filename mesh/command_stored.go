package mesh

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// stored applies an order to runs that no worker has, or whose worker does not
// answer, through their records: the swap decides between replicas. With alone
// the order came over the work queue, because no worker that hears it has the
// run: then it applies to runs of silent owners, too.
func (l *lane) stored(ctx context.Context, o *order, alone bool) (out outcome) {
	if id := o.runID(l.host.Entity); id != "" {
		out = l.applyTo(ctx, state.ID{Entity: l.host.Entity, Run: id}, o, alone)
		return out
	}
	for rec, err := range l.open(ctx) {
		if err != nil {
			out.refused = envelope.Errorf(envelope.CodeUnavailable, "the runs cannot be listed for now: %w", err)
			return out
		}
		c, err := l.codec.Read(rec)
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
			if !o.Durable || o.intent == intents.TaskResume || o.intent == intents.TaskSettle || o.ID == "" && o.Run == "" {
				return out
			}
			if status, ended := l.answered(ctx, o); ended {
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

// answered reports how a task ended that has no run: one that was refused.
func (l *lane) answered(ctx context.Context, o *order) (status string, ended bool) {
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
	case intents.IsCommand(reply.Intent), msg.Header.Get(HeaderEpoch) == "" && reply.To != o.from:
		return "", false // of no run, and not to this sender: see replyReader.another
	case reply.Type == envelope.TypeResult:
		return string(aaif.RunCompleted), true
	case reply.Type == envelope.TypeError:
		return string(aaif.RunFailed), true
	}
	return "", false
}

// applyToRecord applies an order to a record that was read. again says that it
// has changed meanwhile.
func (l *lane) applyToRecord(ctx context.Context, rec state.Record, o *order, alone bool) (out outcome, again bool, err error) {
	c, err := l.codec.Read(rec)
	if err != nil {
		return out, false, err
	}
	m := &c.Mesh
	if !o.mayReach(c) {
		out.refused = unboundOrder()
		return out, false, nil
	}
	if m.Task == nil { // noted commands, and no task yet
		if !o.Durable {
			return out, false, nil
		}
		if err := l.note(ctx, rec.ID, rec.Revision, c, o); err != nil {
			return out, errors.Is(err, state.ErrChanged), err
		}
		out.did(rec.ID.Run, "noted")
		return out, false, nil
	}
	env, err := envelope.ParseLimits(m.Task, l.host.node.limits)
	if err != nil {
		return out, false, err
	}
	t := &Task{Envelope: env, KeyID: m.KeyID, host: l.host, cbor: m.CBOR}
	if !l.mayCommand(o.from, o.signed, t) {
		out.refused = denied(o)
		return out, false, nil
	}
	out.found, out.status = true, string(c.Doc.Status)
	if slices.Contains(m.Commands, o.id) {
		out.did(rec.ID.Run, string(c.Doc.Status))
		return out, false, nil
	}
	if c.Terminal() {
		if m.Handed != nil {
			out = l.follow(ctx, c, o)
		}
		return out, false, nil
	}
	if err := l.mayMove(o, t); err != nil {
		out.refused = border(err)
		return out, false, nil
	}
	if c.Doc.Status == aaif.RunMigrating && m.Migration.Away() && !o.Abort {
		return l.elsewhere(ctx, c, o), false, nil
	}
	owned := !state.Parked(c.Doc.Status) && m.Owner != ""
	if owned && !alone {
		out.silent = m.Owner != l.host.id // its owner answers
		return out, false, nil
	}
	m.Commands = append(m.Commands, o.id)
	kick := false
	switch o.intent {
	case intents.TaskCancel:
		return l.cancelStored(ctx, rec, c, t, o)
	case intents.TaskPause:
		switch {
		case c.Doc.Status == aaif.RunPaused:
			out.did(rec.ID.Run, string(c.Doc.Status))
			return out, false, nil
		case c.Doc.Status == aaif.RunMigrating:
			return out, false, nil // whoever gets it may be asked
		case c.Doc.Status == aaif.RunAwaitingApproval, owned, midCall(c):
			wishPause(c) // it is to stay where it is when it goes on
			out.status = "pausing"
		default:
			c.Doc.Status, out.status = aaif.RunPaused, string(aaif.RunPaused)
		}
		m.Step = state.Step{Kind: state.StepPause, Detail: state.AskedBy + o.who()}
	case intents.TaskSteer:
		if err := steer(c, o, l.clock.now()); err != nil {
			return out, false, err
		}
	case intents.TaskResume:
		if c.Doc.Status != aaif.RunPaused && !approvable(c) {
			if c.Doc.Status == aaif.RunMigrating || !unwishPause(c) {
				return out, false, nil
			}
		} else {
			if c.Doc.Status == aaif.RunAwaitingApproval {
				c.Doc.ApprovalRequest = nil
				unwishPause(c)
			}
			c.Doc.Status, m.Owner, m.Work, kick = aaif.RunRunning, "", 0, true
			m.Epoch++
			resumeMoves(c)
		}
		m.Step = state.Step{Kind: state.StepResume, Detail: state.AskedBy + o.who()}
		out.status = string(c.Doc.Status)
	case intents.TaskMigrate:
		if out.status, kick, err = l.moveStored(c, o); err != nil {
			out.refused = border(err)
			return out, false, nil
		}
	case intents.TaskSettle:
		left, err := settle(c, o)
		if err != nil {
			out.refused = envelope.Errorf(envelope.CodeNotFound, "%s", err.Error())
			return out, false, nil
		}
		m.Step = state.Step{Kind: state.StepSettle, Name: o.Call, Detail: string(o.Outcome) + ", says " + o.who()}
		if left == 0 && c.Doc.Status == aaif.RunAwaitingApproval { // one that is being moved goes on there, or when it is back
			c.Doc.Status, m.Owner, m.Work, kick = aaif.RunRunning, "", 0, true
			c.Doc.ApprovalRequest = nil
			m.Epoch++
			resumeMoves(c)
		}
		out.status = string(c.Doc.Status)
	}
	rev, _, err := l.put(ctx, rec.ID, rec.Revision, c)
	if err != nil {
		return out, errors.Is(err, state.ErrChanged), err
	}
	out.did(rec.ID.Run, out.status)
	if kick {
		if _, err := l.kick(ctx, c, rev); err != nil {
			l.host.log.Warn("resumed run not queued, the sweep will do it", "run", rec.ID.Run, "err", err)
		}
	}
	return out, false, nil
}

// approvable reports whether a run is awaiting_approval for nothing but an approval,
// which to resume it is: no call's outcome is unknown, and no answer is to come.
func approvable(c *state.Checkpoint) bool {
	return c.Doc.Status == aaif.RunAwaitingApproval && len(c.Unknown()) == 0 && !waiting(c)
}

// cancelScheduled ends a task that waits for its time with a record that says so: its
// sender need not wait for that to be told. Nothing is done where it is no such order, or no
// such task, or one that will be refused when it comes.
func (l *lane) cancelScheduled(ctx context.Context, id state.ID, o *order) (out outcome, done, again bool) {
	if o.intent != intents.TaskCancel || o.ID == "" {
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
	if l.admit(r) != nil {
		return out, false, false
	}
	if !l.mayCommand(o.from, o.signed, t) {
		out.refused = envelope.Errorf(envelope.CodeDenied, "%s may not command this task", clip.Text(o.from, 128))
		return out, true, false
	}
	raw, err := r.taskJSON()
	if err != nil {
		return out, false, false
	}
	c := state.New(l.host.Entity, o.ID, l.host.AgentID)
	r.describe(c, raw)
	c.Mesh.Commands = []string{o.id}
	if out, again, err = l.cancelStored(ctx, state.Record{ID: id}, c, t, o); err != nil || again {
		return out, false, again
	}
	// When it falls due all the same, its run has ended: a worker with permissions for
	// its own entity alone may not purge. Who asked has his answer by now, and may have
	// gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := l.cfg.Queue.Unschedule(ctx, l.host.Entity, o.ID); err != nil && !errors.Is(err, jetstream.ErrNotFound) && !errors.Is(err, jetstream.ErrDenied) {
		l.host.log.Warn("cancelled task still scheduled", "run", id.Run, "err", err)
	}
	return out, true, false
}

// cancelStored ends a run that no worker has with a record that says so, and
// sends its reply. Its message, if there is one, finds it so.
func (l *lane) cancelStored(ctx context.Context, rec state.Record, c *state.Checkpoint, t *Task, o *order) (out outcome, again bool, err error) {
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
		if err := r.remind(ctx, c); err != nil {
			return out, false, err
		}
		r.told.keep(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Mesh.Epoch++
	c.Mesh.Owner = l.host.id
	problem := o.problem
	if problem == nil {
		problem = cancelled(o.from, o.Reason)
	}
	if err := r.conclude(c, nil, problem); err != nil {
		return out, false, err
	}
	// If this process dies between the record and the reply, it takes a message
	// to bring the reply about.
	there, err := l.carried(ctx, rec.Time, c.Mesh.Work)
	if err == nil && there != yes {
		_, err = l.kick(ctx, c, 0) // the record that names it is to be written yet
	}
	if err != nil {
		return out, false, err
	}
	rev, _, err := l.put(ctx, rec.ID, rec.Revision, c)
	if err != nil {
		return out, errors.Is(err, state.ErrChanged), err
	}
	r.keep(c, rev)
	r.wrote = true
	t.claim()
	if err := l.tell(r); err != nil {
		// Whoever gets the message, or sweeps, sends it.
		l.host.log.Warn("reply not stored", "run", r.id.Run, "err", err)
	}
	l.work.Go(func() { l.stopCalls(c) })
	out.did(rec.ID.Run, string(aaif.RunFailed))
	return out, false, nil
}

// kick queues a run that is to go on, whose record is c at the given revision, and
// notes its message there, so that the sweep sees that it has one. It says whether
// that is a new message.
func (l *lane) kick(ctx context.Context, c *state.Checkpoint, rev uint64) (fresh bool, err error) {
	stored, err := kickRun(ctx, l.cfg.Queue, c)
	if err != nil || rev == 0 {
		return err == nil, err
	}
	next := c.Clone()
	next.Mesh.Work = stored.Seq
	// If somebody has claimed it meanwhile, there is nothing to note.
	if _, _, err := l.put(ctx, next.ID(), rev, next); err != nil && !errors.Is(err, state.ErrChanged) {
		l.host.log.Debug("message of a run not noted", "run", c.Doc.RunID, "err", err)
	}
	return !stored.Duplicate, nil
}

// settle says what became of a call whose outcome is unknown, or of all of
// those where the order names none, and returns how many are left.
func settle(c *state.Checkpoint, o *order) (left int, err error) {
	calls := []string{o.Call}
	if all := c.Unknown(); o.Call == "" && len(all) > 0 {
		calls = nil
		for _, e := range all {
			calls = append(calls, e.ID)
		}
	}
	for _, call := range calls {
		if left, err = c.Settle(call, string(o.Outcome), o.Result, firstOf(o.Error, o.Reason), o.from, time.Now()); err != nil {
			return left, err
		}
	}
	return left, nil
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

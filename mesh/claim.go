package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// errCrowded says that a new run may not begin now: the agent's runs take more than
// their share of the store.
var errCrowded = errors.New("the agent's runs take more than their share of the store")

// claim claims the run for this worker by compare-and-swap: it creates the run's
// record, or makes this worker the owner in the record that exists, with the next
// epoch. Of concurrent claims one succeeds. ending, if not nil, ends the run at once
// with that error. r.mu is held.
func (r *Run) claim(ctx context.Context, ending *envelope.Error) (run.Verdict, error) {
	return r.claimOver(ctx, nil, ending)
}

// claimOver is claim with a record that the caller has read. If rec is nil, it uses the record
// that was read when the message arrived, or reads the record itself. A record from the arrival
// may have changed since: a verdict on it that writes nothing is checked with a record that is
// read now.
func (r *Run) claimOver(ctx context.Context, rec *state.Record, ending *envelope.Error) (run.Verdict, error) {
	fresh := r.hold.Delivered <= 1 && r.stored == nil && r.hold.retryID() == "" // most likely it has no record
	for tries := 0; ; tries++ {
		early := tries == 0 && rec == nil && r.arrived != nil
		if early {
			rec = r.arrived
		} else if !fresh && rec == nil {
			var err error
			if rec, err = r.read(ctx); err != nil {
				return 0, err
			}
		}
		c, prev := state.New(r.lane.host.Entity, r.task.Envelope.ID, r.lane.host.AgentID), uint64(0)
		if early {
			c, prev = r.stored.Clone(), rec.Revision
		} else if rec != nil {
			var err error
			if c, err = r.lane.records.read(*rec); err != nil {
				return 0, err
			}
			prev = rec.Revision
		}
		v, m, err := r.judge(ctx, rec, c)
		if err == nil && early && v != run.Mine && v != run.Moving {
			rec = nil
			continue
		}
		if err != nil || v != run.Mine && v != run.Moving {
			if err == nil && (v == run.Ended || v == run.Parked) {
				r.found(rec, c)
			}
			return v, err
		}
		change, err := r.change(ctx, c, v, m, ending)
		if err != nil {
			return 0, err
		}
		if v = change.Verdict; v == run.Mine && change.Began && r.cp.Load() == nil && !r.lane.share.Admit(ctx, &r.reserved, int64(len(r.hold.Data))) {
			return 0, errCrowded
		}
		if v == run.Mine && rec == nil && fresh && !r.lane.share.Near() && r.mayDelayClaim(ctx) {
			r.keep(c, 0)
			return v, nil
		}
		if v == run.Ended {
			r.observe(PointBeforeTerminal)
		}
		rev, now, err := r.lane.records.putNoted(ctx, r.id, prev, c, jetstream.Note{Corr: r.task.Envelope.Corr})
		if errors.Is(err, state.ErrChanged) && tries < 20 {
			fresh, rec = false, now
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("claim run %s: %w", r.id.Run, err)
		}
		r.keep(c, rev)
		switch v {
		case run.Ended:
			r.wrote = true
			r.observe(PointAfterTerminal)
		case run.Parked:
			r.parked = c.Doc.Status
		}
		return v, nil
	}
}

// judge returns what the message means for the run's record c; rec is nil for a run
// without one. It looks up the facts that the verdict depends on.
func (r *Run) judge(ctx context.Context, rec *state.Record, c *state.Checkpoint) (run.Verdict, run.Message, error) {
	l := r.lane
	m := run.Message{Worker: l.host.id, Seq: r.hold.Seq, Redelivered: max(r.hold.Delivered, 1) - 1, Retry: r.hold.retryID()}
	if rec == nil {
		return run.Mine, m, nil
	}
	m.Taken = l.clock.at(r.hold.drawnAt)
	var err error
	if c.Mesh.Task != nil || c.Terminal() {
		if m.Same, err = r.sameTask(rec, c); err != nil {
			return 0, m, err
		}
	}
	for {
		v := run.Judge(c, rec.Time, m)
		switch v {
		case run.AskQueue:
			m.OtherMessage, err = l.records.messageQueued(ctx, rec.Time, c.Mesh.Work, c.Mesh.TaskID)
		case run.AskRetry:
			m.Retried = run.No
			var yes bool
			if yes, err = r.retried(ctx); yes {
				m.Retried = run.Yes
			}
		default:
			return v, m, nil
		}
		if err != nil {
			return 0, m, err
		}
	}
}

// change turns the checkpoint c into the one that the claim stores: with this worker
// as the owner, or with the run's end.
func (r *Run) change(ctx context.Context, c *state.Checkpoint, v run.Verdict, m run.Message, ending *envelope.Error) (run.Claimed, error) {
	l, begins := r.lane, c.Mesh.Task == nil
	streaming := r.task.Streaming() && !begins && v == run.Mine
	if streaming {
		if err := r.readStream(ctx, c); err != nil {
			return run.Claimed{}, err
		}
	}
	terms := run.Terms{
		Now: l.clock.now(), Version: l.host.Version, Stored: r.hold.Stored, Deadline: r.hold.Stored.Add(r.task.Requires.Timeout), Limit: r.overdue,
		Ending: ending, Refused: r.refusal, MaxClaims: l.cfg.MaxClaims,
		MayCommand: func(n state.Noted) bool {
			return l.commands.mayCommand(n.From, n.Caller, n.KeyID != "", r.task) && (n.Intent != intents.TaskSteer || l.host.Steers)
		},
	}
	if begins {
		c.Mesh.TaskID = r.task.Envelope.ID // a record of noted commands may have none
		var err error
		if terms.Task, err = r.described(); err != nil {
			return run.Claimed{}, err
		}
		retried, err := r.retried(ctx)
		if err != nil {
			return run.Claimed{}, err
		}
		if retried {
			m.Retried = run.Yes
		}
		if stale := l.deliveries.checkTime(r, retried); stale != nil {
			terms.Refused = stale
		}
	}
	out := run.Claim(c, v, m, terms)
	r.dead, r.recovered = out.Dead, out.Recovered
	r.ran, r.begun = c.Mesh.Ran, time.Now()
	if v == run.Moving {
		r.stream.Resume(c)
		return out, nil
	}
	r.restored = out.Restored
	r.task.tree.RestoreTurns(c)
	if out.Was != "" {
		l.host.log.Warn("a run goes on under another version of its agent", "run", r.id.Run, "was", clip.Text(out.Was, 128), "is", l.host.Version)
	}
	for _, n := range out.Refused {
		l.host.log.Warn("command refused", "command", n.Intent, "id", r.task.Envelope.ID, "from", n.From)
	}
	switch {
	case out.Verdict == run.Ended:
		r.stream.Save(c)
		return out, r.setEnd(c, nil, out.End)
	case out.Capture:
		r.claiming = c
		return out, r.captured(c)
	}
	return out, nil
}

// read returns the run's record, nil where there is none.
func (r *Run) read(ctx context.Context) (*state.Record, error) {
	rec, err := r.lane.cfg.States.Get(ctx, r.id)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read run %s: %w", r.id.Run, err)
	}
	return &rec, nil
}

// described returns the message's task as it is written into the record.
func (r *Run) described() (run.Task, error) {
	raw, err := r.taskJSON()
	t := r.task
	out := run.Task{Envelope: raw, KeyID: t.KeyID, CBOR: t.cbor, Priority: t.Envelope.Priority, Stored: r.hold.Stored, Deadline: r.deadline}
	if t.handed != nil {
		out.Stream = t.handed.Stream
		if t.host.Steers {
			out.Steering = t.handed.Steering
		} else if len(t.handed.Steering) > 0 {
			t.host.log.Warn("messages for the next turn dropped", "id", t.Envelope.ID, "from", t.Envelope.From)
		}
	}
	return out, err
}

// taskJSON returns the task's envelope as it was received; an envelope in CBOR is
// converted to JSON.
func (r *Run) taskJSON() ([]byte, error) {
	if r.stored != nil {
		return r.stored.Mesh.Task, nil
	}
	if !r.task.cbor {
		return r.hold.Data, nil
	}
	return r.task.Envelope.AppendJSON(nil)
}

// found keeps the record of a run that does not go on here. r.mu is held.
func (r *Run) found(rec *state.Record, c *state.Checkpoint) {
	r.cp.Store(c)
	r.rev, r.replied = rec.Revision, rec.Replied
}

// sameTask reports whether the record belongs to the task of the message.
func (r *Run) sameTask(rec *state.Record, c *state.Checkpoint) (bool, error) {
	switch {
	case r.stored != nil:
		return true, nil
	case rec.End != nil:
		return rec.End.Digest != "" && rec.End.Digest == wire.TaskDigest(r.task.Envelope), nil
	}
	raw, err := r.taskJSON()
	if err != nil || bytes.Equal(raw, c.Mesh.Task) {
		return err == nil, err
	}
	was, err := envelope.ParseStored(c.Mesh.Task)
	if err != nil {
		return false, nil
	}
	if digest := wire.TaskDigest(was); was.ReplyTo != "" && digest != "" {
		return digest == wire.TaskDigest(r.task.Envelope), nil // a hop, which may have been sent again with other values
	}
	a, errA := was.Hash()
	b, errB := r.task.Envelope.Hash()
	if errA == nil && errB == nil && a == b {
		return true, nil
	}
	// Priority and trace may differ between two submissions of one task.
	x, y := was.Clone(), r.task.Envelope.Clone()
	x.Priority, x.Trace, y.Priority, y.Trace = envelope.PriorityNormal, nil, envelope.PriorityNormal, nil
	a, errA = x.Hash()
	b, errB = y.Hash()
	return errA == nil && errB == nil && a == b, nil
}

// isOf is sameTask for a message that this worker may not be able to verify.
func (r *Run) isOf(rec *state.Record, c *state.Checkpoint) bool {
	same, err := r.sameTask(rec, c)
	return err == nil && same
}

// retried reports whether an operator retries a dead letter with this message. The
// header alone is unsigned and grants nothing.
func (r *Run) retried(ctx context.Context) (bool, error) {
	header := r.hold.Header.Get(jetstream.HeaderRetry)
	if header == "" {
		return false, nil
	}
	return r.lane.cfg.Dead.Retrying(ctx, r.lane.host.Entity, header, r.hold.Data)
}

// retryID identifies a retry of a dead letter among the commands of the run.
func (h *hold) retryID() string {
	if seq := h.Header.Get(jetstream.HeaderRetry); seq != "" {
		return run.RetryPrefix + seq
	}
	return ""
}

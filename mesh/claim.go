package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// verdict is what a claim comes to.
type verdict int

const (
	runs    verdict = iota // the run is ours: the handler begins
	ended                  // the run has ended, now or before: reply and acknowledge
	parked                 // the run waits for somebody: acknowledge
	moving                 // the run is to be moved, or is elsewhere: see lane.move
	foreign                // another message has the run: acknowledge this one
	later                  // another message may have the run: give this one back
	crowded                // the agent's runs take more than their share: give this one back
	older                  // a newer delivery of this message has the run: say nothing
	reused                 // the task's id belongs to another task
)

// claim takes the run for this worker: it makes its record, or writes itself
// into the one that is there, with the next epoch. Of all who try, the swap lets
// one. With ending the run is not to begin: it ends with that error at once.
// r.mu is held.
func (r *Run) claim(ctx context.Context, ending *envelope.Error) (verdict, error) {
	return r.claimOver(ctx, nil, ending)
}

// claimOver is claim over a record that was read; nil: it is to be looked for.
func (r *Run) claimOver(ctx context.Context, rec *state.Record, ending *envelope.Error) (verdict, error) {
	fresh := r.hold.Delivered <= 1 && r.stored == nil && r.retryID() == "" // most likely nobody knows it
	for tries := 0; ; tries++ {
		r.dead, r.recovered = "", false
		if !fresh && rec == nil {
			var err error
			if rec, err = r.read(ctx); err != nil {
				return 0, err
			}
		}
		var next *state.Checkpoint
		var end *envelope.Error
		v, begins := runs, rec == nil
		if rec == nil {
			c, err := r.first()
			if err != nil {
				return 0, err
			}
			if end, err = r.judgeFirst(ctx); err != nil {
				return 0, err
			}
			next = c
		} else {
			c, err := r.lane.codec.Read(*rec)
			if err != nil {
				return 0, err
			}
			begins = c.Mesh.Task == nil
			v, err = r.judge(ctx, rec, c)
			if err != nil || v != runs && v != moving {
				return v, err
			}
			if r.task.Streaming() && c.Mesh.Task != nil && v == runs {
				if err := r.remind(ctx, c); err != nil {
					return 0, err
				}
			}
			if next = c; v == runs {
				if end, err = r.judgeAgain(ctx, c); err != nil {
					return 0, err
				}
			}
		}
		if v == moving {
			r.enterMoving(next)
		} else {
			var err error
			if v, err = r.enter(next, firstError(ending, end)); err != nil {
				return 0, err
			}
		}
		if v == runs && begins && r.cp.Load() == nil && !r.lane.share.admit(ctx, r) {
			return crowded, nil
		}
		if v == runs && rec == nil && fresh && r.mayWait(ctx) {
			r.keep(next, 0)
			return v, nil
		}
		if v == ended {
			r.observe(PointBeforeTerminal)
		}
		var prev uint64
		if rec != nil {
			prev = rec.Revision
		}
		rev, now, err := r.lane.put(ctx, r.id, prev, next)
		if errors.Is(err, state.ErrChanged) && tries < 20 {
			fresh, rec = false, now
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("claim run %s: %w", r.id.Run, err)
		}
		r.keep(next, rev)
		switch v {
		case ended:
			r.wrote = true
			r.observe(PointAfterTerminal)
		case parked:
			r.parked = next.Doc.Status
		}
		return v, nil
	}
}

func firstError(errs ...*envelope.Error) *envelope.Error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
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

// first is the checkpoint of a run that begins.
func (r *Run) first() (*state.Checkpoint, error) {
	h, t := r.lane.host, r.task
	raw, err := r.taskJSON()
	if err != nil {
		return nil, err
	}
	c := state.New(h.Entity, t.Envelope.ID, h.AgentID)
	c.Doc.AgentVersion = h.Version
	r.describe(c, raw)
	return c, nil
}

// describe writes into a checkpoint what the message says of its task.
func (r *Run) describe(c *state.Checkpoint, raw []byte) {
	m, t := &c.Mesh, r.task
	m.Task, m.KeyID, m.CBOR, m.Priority = raw, t.KeyID, t.cbor, string(t.Envelope.Priority)
	if t.handed != nil {
		m.Stream = t.handed.Stream
	}
	m.StoredAt, m.Deadline, m.StartedAt = r.hold.Stored, r.deadline, r.lane.clock.now()
}

// taskJSON is the task's envelope as it came; one in CBOR as the JSON that it
// stands for.
func (r *Run) taskJSON() ([]byte, error) {
	if r.stored != nil {
		return r.stored.Mesh.Task, nil
	}
	if !r.task.cbor {
		return r.hold.Data, nil
	}
	return r.task.Envelope.AppendJSON(nil)
}

// judge decides what a record that is there means for this message.
func (r *Run) judge(ctx context.Context, rec *state.Record, c *state.Checkpoint) (verdict, error) {
	m := &c.Mesh
	if m.Task == nil {
		return runs, nil // a command was noted, and nobody has begun the task
	}
	if same, err := r.sameTask(c); err != nil || !same {
		return reused, err
	}
	switch {
	case c.Terminal() && c.Mesh.Dead != "" && r.retryID() != "":
		again, err := r.retried(ctx)
		if err != nil {
			return 0, err
		}
		if again && !slices.Contains(m.Commands, r.retryID()) {
			return runs, nil
		}
		r.cp.Store(c)
		return ended, nil
	case c.Terminal():
		r.cp.Store(c)
		return ended, nil
	case c.Doc.Status == aaif.RunMigrating:
		r.cp.Store(c)
		return r.judgeMoving(c), nil
	case state.Parked(c.Doc.Status):
		r.cp.Store(c)
		return parked, nil
	case m.Work != 0 && m.Work != r.hold.Seq:
		// Another message carries the run. While it is there, this one is one
		// too many.
		switch there, err := r.lane.carried(ctx, rec.Time, m.Work); {
		case err != nil:
			return 0, err
		case there == maybe:
			return later, nil
		case there == yes:
			return foreign, nil
		}
	case m.Owner != "" && m.Owner != r.lane.host.id && rec.Time.After(r.lane.clock.at(r.hold.taken).Add(clockSlack)):
		// It was claimed after this worker had got the message: by one that
		// the server gave it to later, because ours had expired.
		return older, nil
	}
	return runs, nil
}

// clockSlack is by how much the two clocks may seem to differ.
const clockSlack = 50 * time.Millisecond

// sameTask reports whether the record is about the envelope that came.
func (r *Run) sameTask(c *state.Checkpoint) (bool, error) {
	if r.stored != nil {
		return true, nil
	}
	raw, err := r.taskJSON()
	if err != nil || bytes.Equal(raw, c.Mesh.Task) {
		return err == nil, err
	}
	was, err := envelope.ParseLimits(c.Mesh.Task, r.lane.host.node.limits)
	if err != nil {
		return false, nil
	}
	if digest := taskDigest(was); was.ReplyTo != "" && digest != "" {
		return digest == taskDigest(r.task.Envelope), nil // a hop, maybe sent again
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

// retried reports whether an operator tries a dead letter again with this message. The
// header that says so is not signed, and permits nothing.
func (r *Run) retried(ctx context.Context) (bool, error) {
	header := r.hold.Header.Get(jetstream.HeaderRetry)
	if header == "" {
		return false, nil
	}
	return r.lane.cfg.Dead.Retrying(ctx, r.lane.host.Entity, r.task.Envelope.ID, header, r.hold.Data)
}

// retryID is a retry's among the commands of the run.
func (r *Run) retryID() string {
	if seq := r.hold.Header.Get(jetstream.HeaderRetry); seq != "" {
		return "retry." + seq
	}
	return ""
}

// judgeFirst decides whether a task that nobody has seen may begin.
func (r *Run) judgeFirst(ctx context.Context) (*envelope.Error, error) {
	retried, err := r.retried(ctx)
	return firstError(r.lane.stale(r, retried), r.refusal), err
}

// judgeAgain decides whether a run may go on, and brings c up to date.
func (r *Run) judgeAgain(ctx context.Context, c *state.Checkpoint) (*envelope.Error, error) {
	m := &c.Mesh
	if m.Task == nil {
		raw, err := r.taskJSON()
		if err != nil {
			return border(err), nil
		}
		r.describe(c, raw)
		c.Doc.Status = aaif.RunRunning
		if problem, err := r.judgeFirst(ctx); problem != nil || err != nil {
			return problem, err
		}
		return r.noted(c), nil
	}
	if c.Terminal() { // reopened
		m.Commands = append(m.Commands, r.retryID())
		m.Dead, m.Reply, m.Claims, m.Attempt = "", nil, 0, 0
		c.Doc.Error = nil
		m.StoredAt, m.Deadline = r.hold.Stored, r.hold.Stored.Add(r.task.Requires.Timeout)
	}
	if m.Owner != "" {
		r.recovered = true
	}
	if r.refusal != nil {
		return r.refusal, nil
	}
	if m.Claims >= r.lane.cfg.MaxClaims {
		r.dead = fmt.Sprintf("claimed %s without completing a step", times(m.Claims))
		return envelope.Errorf(envelope.CodeInternal, "the task was begun %s and its worker was lost each time", times(m.Claims)), nil
	}
	return nil, nil
}

// noted applies the commands that came before the task, where their senders may
// command it. It returns how the task ends if one of them was a cancel.
func (r *Run) noted(c *state.Checkpoint) (end *envelope.Error) {
	m := &c.Mesh
	for _, n := range m.Noted {
		if !r.lane.mayCommand(n.From, n.KeyID != "", r.task) {
			r.lane.host.log.Warn("command refused", "command", n.Intent, "id", r.task.Envelope.ID, "from", n.From)
			continue
		}
		m.Commands = append(m.Commands, n.ID)
		switch n.Intent {
		case intents.TaskCancel:
			end = cancelled(n.From, n.Reason)
		case intents.TaskPause:
			m.Want = string(aaif.RunPaused)
		case intents.TaskSteer:
			m.Steering = append(m.Steering, state.Steer{ID: n.ID, From: n.From, Text: n.Text, At: n.At})
		}
	}
	m.Noted = nil
	return end
}

// enter makes of a checkpoint the one that the claim stores: with us as the
// owner, or with the run's end.
func (r *Run) enter(c *state.Checkpoint, end *envelope.Error) (verdict, error) {
	m := &c.Mesh
	r.restored = progressed(c)
	r.ran, r.begun = m.Ran, time.Now()
	r.task.turns.restore(c)
	m.Epoch++
	m.Claims++
	m.Owner, m.Work = r.lane.host.id, r.hold.Seq
	m.Step = state.Step{Kind: state.StepClaim, Detail: r.otherVersion(c)}
	backFrom(c, r.lane.clock.now())
	c.Doc.Status = aaif.RunRunning
	if end == nil && !m.Deadline.IsZero() && !m.Deadline.After(r.lane.clock.now()) {
		end = r.overdue()
	}
	if end != nil {
		if err := r.told.finish(true); err != nil {
			return 0, err
		}
		r.told.keep(c)
		return ended, r.conclude(c, nil, end)
	}
	if m.Want != "" && !midCall(c) {
		c.Doc.Status, m.Want, m.Owner, m.Claims = aaif.RunStatus(m.Want), "", "", 0
		m.Step = state.Step{Kind: state.StepPause}
		if c.Doc.Status == aaif.RunMigrating {
			return moving, r.captured(c)
		}
		return parked, nil
	}
	return runs, nil
}

// otherVersion says in a few words that a run was begun, or went on last, under
// another version of the agent than this worker's: it goes on under this one, which
// the next checkpoints say (AAIF, Agent State, agent_version).
func (r *Run) otherVersion(c *state.Checkpoint) string {
	h, was := r.lane.host, c.Doc.AgentVersion
	c.Doc.AgentVersion = h.Version
	if was == "" || was == h.Version {
		return ""
	}
	h.log.Warn("a run goes on under another version of its agent", "run", r.id.Run, "was", clip.Text(was, 128), "is", h.Version)
	return "of version " + clip.Text(was, 128) + ", goes on under " + h.Version
}

// progressed reports whether there is more in a checkpoint than claims.
func progressed(c *state.Checkpoint) bool {
	d, m := &c.Doc, &c.Mesh
	return len(d.Conversation) > 0 || len(d.Variables) > 0 || d.PipelinePosition != nil || d.Iteration.Int64() > 0 ||
		len(m.Loop) > 0 || len(m.Calls) > 0 || len(m.Effects) > 0 || m.Attempt > 0 || m.Step.Kind != state.StepClaim && m.Epoch > 0
}

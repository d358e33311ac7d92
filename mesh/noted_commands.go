package mesh

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/state"
)

// A command for a task that has not begun is noted (internal/orders): stored in a record that the
// worker reads when it begins the task.

// note stores a command for a task that has not begun. rec is the record with the commands that are
// noted already, and c its checkpoint; nil: there are none.
func (cs *commands) note(ctx context.Context, id state.ID, rec state.Record, c *state.Checkpoint, o *orders.Order) error {
	if c == nil {
		c = state.New(cs.host.Entity, "", cs.host.AgentID)
		c.Doc.RunID, c.Doc.Status = id.Run, aaif.RunPaused
	}
	if o.IsOf(id) { // a command that names the run may have no id, or any
		c.Mesh.TaskID = o.ID
	}
	now := cs.clock.now()
	if added, err := cs.notes.Add(c, o, cs.host.Entity, now); err != nil || !added {
		return err
	}
	due, err := cs.scheduled(ctx, c.Mesh.TaskID)
	if err != nil && cs.records.temporary(err) {
		return envelope.Errorf(envelope.CodeUnavailable, "it is not known for now whether the task is scheduled, and for how long the command must be kept: %w", err)
	}
	return cs.putNotes(ctx, id, rec, c, due)
}

// putNotes stores c in place of rec, until [orders.NoteTTL] from now, or from the time due if that is
// later, and not for a shorter time than rec: when c expires, rec would be the current record again.
// A due of zero is not known: c keeps the one that it has.
func (cs *commands) putNotes(ctx context.Context, id state.ID, rec state.Record, c *state.Checkpoint, due time.Time) error {
	now := cs.clock.now()
	life := orders.NoteTTL + max(0, due.Sub(now))
	if !due.IsZero() {
		c.Mesh.Due = due
	}
	if rec.TTL > 0 { // the store keeps whole seconds
		life = max(life, rec.Time.Add(rec.TTL).Sub(now)+time.Second)
	}
	_, _, err := cs.records.putNoted(ctx, id, rec.Revision, c, jetstream.Note{TTL: life})
	if err == nil {
		now := cs.clock.now()
		cs.notes.Count(id.Run, c.Mesh.Noted, now, now.Add(life))
	}
	return err
}

// scheduled returns when a scheduled task is due, zero if the task is not scheduled. A replica that
// lags behind may not find it: see renewNotes. An error says that it is not known.
func (cs *commands) scheduled(ctx context.Context, taskID string) (due time.Time, err error) {
	if taskID == "" {
		return due, nil
	}
	s, err := cs.cfg.Queue.FindScheduled(ctx, cs.host.Entity, taskID)
	switch {
	case err == nil:
		return s.Due, nil
	case cs.records.temporary(err), errors.Is(err, jetstream.ErrDenied):
		return due, err
	}
	return due, nil // there is none, or what is there is no task
}

// renewNotes rewrites a record of noted commands that is about to expire, while its task is scheduled
// or the queue may hold it, at most until [orders.NoteMost].
func (cs *commands) renewNotes(ctx context.Context, rec state.Record, c *state.Checkpoint) error {
	now, noted := cs.clock.now(), c.Mesh.Noted
	life := cmp.Or(rec.TTL, orders.NoteTTL)
	if age := cs.cfg.States.MaxAge(ctx); age > 0 {
		life = min(life, age)
	}
	until := rec.Time.Add(life)
	cs.notes.Count(rec.ID.Run, noted, now, until)
	if until.Sub(now) > orders.NoteTTL/2 || len(noted) == 0 {
		return nil
	}
	due, err := cs.scheduled(ctx, c.Mesh.TaskID)
	if due.IsZero() && (err == nil && !mayHold(cs.queue.Health(), c) || now.Sub(later(noted[0].At, c.Mesh.Due)) > orders.NoteMost) {
		return nil
	}
	if err := cs.putNotes(ctx, rec.ID, rec, c, due); !errors.Is(err, state.ErrChanged) {
		return err
	}
	return nil
}

// mayHold reports whether a queue may hold the task of the notes c: it has a message that is not
// acknowledged, or one that is older than the last noted command. A scheduled task enters the queue
// when it is due, or somewhat later.
func mayHold(h jetstream.LaneHealth, c *state.Checkpoint) bool {
	entered := c.Mesh.Noted[len(c.Mesh.Noted)-1].At
	if due := c.Mesh.Due; !due.IsZero() {
		entered = later(entered, due.Add(orders.NoteTTL))
	}
	return h.Unacked > 0 || !h.Oldest.IsZero() && !h.Oldest.After(entered)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

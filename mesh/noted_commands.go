package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/state"
)

// A command for a task that has not begun is noted (internal/orders): stored in a record that the
// worker reads when it begins the task.

// note stores a command for a task that has not begun.
func (cs *commands) note(ctx context.Context, id state.ID, prev uint64, c *state.Checkpoint, o *orders.Order) error {
	if c == nil {
		c = state.New(cs.host.Entity, o.ID, cs.host.AgentID)
		c.Doc.RunID, c.Doc.Status = id.Run, aaif.RunPaused
	}
	now := cs.clock.now()
	if added, err := cs.notes.Add(c, o, cs.host.Entity, now); err != nil || !added {
		return err
	}
	life := orders.NoteTTL
	if due, ok := cs.scheduled(ctx, c.Mesh.TaskID); ok {
		life += max(0, due.Sub(now))
	}
	return cs.putNotes(ctx, id, prev, c, life)
}

func (cs *commands) putNotes(ctx context.Context, id state.ID, prev uint64, c *state.Checkpoint, life time.Duration) error {
	_, _, err := cs.records.putNoted(ctx, id, prev, c, jetstream.Note{TTL: life})
	if err == nil {
		now := cs.clock.now()
		cs.notes.Count(id.Run, c.Mesh.Noted, now, now.Add(life))
	}
	return err
}

// scheduled returns when a scheduled task is due.
func (cs *commands) scheduled(ctx context.Context, taskID string) (due time.Time, ok bool) {
	if taskID == "" {
		return due, false
	}
	s, err := cs.cfg.Queue.FindScheduled(ctx, cs.host.Entity, taskID)
	return s.Due, err == nil
}

// renewNotes rewrites a record of noted commands that is about to expire, while the queue may
// hold its task. That is so while the queue has a message that is older than the last noted
// command, or one that is not acknowledged.
func (cs *commands) renewNotes(ctx context.Context, rec state.Record, c *state.Checkpoint) error {
	now, noted, until := cs.clock.now(), c.Mesh.Noted, rec.Time.Add(orders.NoteTTL)
	old := now.Sub(rec.Time) >= orders.NoteTTL/2
	due, scheduled := time.Time{}, false
	if old {
		if due, scheduled = cs.scheduled(ctx, c.Mesh.TaskID); scheduled {
			until = due.Add(orders.NoteTTL)
		}
	}
	cs.notes.Count(rec.ID.Run, noted, now, until)
	if !old || scheduled || len(noted) == 0 || now.Sub(noted[0].At) > orders.NoteMost {
		return nil
	}
	h := cs.queue.Health()
	if h.Unacked == 0 && (h.Oldest.IsZero() || h.Oldest.After(noted[len(noted)-1].At)) {
		return nil
	}
	err := cs.putNotes(ctx, rec.ID, rec.Revision, c, orders.NoteTTL)
	if errors.Is(err, state.ErrChanged) {
		return nil
	}
	return err
}

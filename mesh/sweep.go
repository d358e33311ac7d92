package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/tender"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// A sweep is one pass over the runs of a lane that have not ended.
type sweep struct {
	*lane
	began   time.Time     // by the server's clock
	settled time.Duration // the message of a younger record may not be stored yet
	noted   map[string]bool
	watched map[string]uint64 // runs that the worker watched when the sweep began, and that are not known to wait
	queued  int
}

// newTended returns what the node's tender needs of the lane.
func newTended(l *lane) *tender.Lane {
	return &tender.Lane{
		Entity: l.host.Entity, Instance: l.host.id, Open: l.records.open, Owns: func(id string) bool { return l.run(id) != nil }, Wake: l.waits.check,
		LookAfter: func(owner string) { l.guardian.LookAfter(l.ctx, owner, 0) },
		Sweep: func() (func(context.Context, state.Record) error, func(bool)) {
			s := l.sweep()
			return s.run, s.done
		},
	}
}

func (l *lane) sweep() *sweep {
	return &sweep{lane: l, began: l.clock.now(), settled: 2 * l.queue.Lease(), watched: l.waits.Watched()}
}

// run requeues a run if it needs it.
func (s *sweep) run(ctx context.Context, rec state.Record) error {
	l := s.lane
	if l.ctx.Err() != nil || l.run(rec.ID.Run) != nil || l.clock.now().Sub(rec.Time) < s.settled {
		delete(s.watched, rec.ID.Run)
		return nil
	}
	h, err := rec.Header()
	if err != nil || state.Terminal(h.Status) {
		return nil
	}
	if h.Object != nil {
		l.host.log.Debug("run not looked after, its document is lost", "run", rec.ID.Run)
		return nil
	}
	if h.Status == aaif.RunAwaitingApproval {
		delete(s.watched, rec.ID.Run)
		l.waits.check(rec.ID.Run) // an answer may have been missed while the connection was lost
	}
	if h.Work != 0 && run.Carried(h.Status) {
		if there, err := l.records.messageQueued(ctx, rec.Time, h.Work, h.TaskID); err != nil {
			return err
		} else if there != run.No || l.alive(ctx, h.Owner) {
			return nil
		}
	}
	if h.Status == aaif.RunPaused && h.Work == 0 {
		if s.noted == nil {
			s.noted = map[string]bool{}
		}
		s.noted[rec.ID.Run] = true // maybe: see requeue
	}
	again, err := l.requeue(ctx, rec)
	if err != nil {
		l.host.log.Warn("run not queued anew", "run", rec.ID.Run, "err", err)
	}
	if again {
		s.queued++
	}
	return nil
}

// done ends a sweep; complete says that the sweep has read all runs.
func (s *sweep) done(complete bool) {
	if complete {
		s.commands.notes.Forget(s.noted, s.began.Add(-s.settled))
		s.waits.Forget(s.watched) // they have ended, or no longer wait: only the worker that did that knew
	}
	if s.queued > 0 {
		s.host.log.Warn("runs without a message queued anew", "runs", s.queued)
		s.tel.Swept(s.host.Entity, s.queued)
	}
}

// alive reports whether the owner that a record names answers a ping. If it does, it
// completes the run even without a message.
func (l *lane) alive(ctx context.Context, owner string) bool {
	if owner == "" || owner == l.host.id {
		return false // the runs that this worker executes were skipped before
	}
	return l.host.node.prober.Ping(ctx, l.host.Entity, owner) == nil
}

// requeue requeues a run that should have a message and has none, and reports whether it
// did.
func (l *lane) requeue(ctx context.Context, rec state.Record) (bool, error) {
	c, err := l.records.read(rec)
	if err != nil {
		return false, err
	}
	switch need, why := run.Needs(c, l.clock.now()); need {
	case run.NeedsNothing:
		return false, l.keepParked(ctx, rec, c)
	case run.NeedsNotes:
		return false, l.commands.renewNotes(ctx, rec, c)
	case run.NeedsWake:
		run.Wake(c, why)
		rev, _, err := l.records.put(ctx, rec.ID, rec.Revision, c)
		if err != nil {
			return false, err
		}
		rec.Revision = rev
	}
	return l.records.requeue(ctx, c, rec.Revision)
}

// keepParked writes the record of a parked run again that has half the age at which the store removes
// it: the run's deadline, which may be later, must find it. A run that was parked before a worker
// claimed it has no deadline, and gets one. keepParked does nothing for other runs.
func (l *lane) keepParked(ctx context.Context, rec state.Record, c *state.Checkpoint) error {
	if s := c.Doc.Status; s != aaif.RunPaused && s != aaif.RunAwaitingApproval {
		return nil
	}
	if c.Mesh.Deadline.IsZero() {
		task, err := envelope.ParseStored(c.Mesh.Task)
		if err != nil {
			return err
		}
		limits, _ := task.Requirements() // what can be read counts, as for any task
		c.Mesh.Deadline = l.clock.now().Add(l.deliveries.timeout(limits))
	} else if age := l.cfg.States.MaxAge(ctx); age == 0 || l.clock.now().Sub(rec.Time) < age/2 {
		return nil
	}
	if _, _, err := l.records.put(ctx, rec.ID, rec.Revision, c); !errors.Is(err, state.ErrChanged) {
		return err
	}
	return nil // another worker has written it, or a command
}

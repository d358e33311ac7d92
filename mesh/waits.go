package mesh

import (
	"context"
	"errors"
	"iter"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/internal/parked"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// waits wakes parked runs of the entity that wait for answers or a time: those that this
// worker parked and those that it found in the store. It watches them (internal/parked);
// a missed answer is found by the next check of all runs. Every worker of the entity may
// watch a run; the compare-and-swap lets one of them wake it.
type waits struct {
	*parked.Runs
	l *lane
}

func newWaits(l *lane) *waits {
	w := &waits{l: l}
	w.Runs = parked.New(parked.Config{
		Conn: l.host.node.conn, Log: l.host.log,
		Check: w.check, CheckAll: w.checkAll,
	})
	return w
}

// checkAll requests a check of all waiting runs.
func (w *waits) checkAll() { w.l.host.node.tender.CheckAll(w.l.tended) }

// check wakes a run that has a reason to wake, and watches it otherwise.
func (w *waits) check(run string) {
	ctx, cancel := context.WithTimeout(w.l.ctx, sched.StoreTimeout)
	defer cancel()
	err := w.wakeIfDue(ctx, state.ID{Entity: w.l.host.Entity, Run: run})
	if err == nil || w.l.ctx.Err() != nil {
		return
	}
	w.l.host.log.Warn("waiting run not checked", "run", run, "err", err)
	if w.l.records.temporary(err) {
		w.checkAll()
	}
}

func (w *waits) wakeIfDue(ctx context.Context, id state.ID) error {
	rec, err := w.l.cfg.States.Get(ctx, id)
	if err != nil {
		w.Remove(id.Run)
		if errors.Is(err, state.ErrNotFound) {
			return nil
		}
		return err
	}
	c, err := w.l.records.read(rec)
	if err != nil || !run.Waits(c) {
		w.Remove(id.Run)
		return err
	}
	w.watch(rec, c) // before the check, so that no answer between the two is missed
	why, err := w.l.reasonToWake(ctx, c)
	if err != nil || why == "" {
		return err
	}
	run.Wake(c, why)
	switch err := w.l.goOn(ctx, rec, c); {
	case err == nil:
		w.Remove(id.Run)
	case errors.Is(err, state.ErrChanged): // by the worker that woke it first, or by a command
		w.CheckSoon(id.Run)
	default:
		return err
	}
	return nil
}

// watch watches the reply subjects that a run waits for, and sets a timer for its time.
func (w *waits) watch(rec state.Record, c *state.Checkpoint) {
	at := run.Earliest(c, c.Mesh.WakeAt)
	if !at.IsZero() {
		at = w.l.clock.local(at).Add(run.ClockSlack)
	}
	w.Watch(rec.ID.Run, rec.Revision, w.l.answerSubjects(c), at)
}

// answerSubjects are the reply subjects of the tasks that a run waits for.
func (l *lane) answerSubjects(c *state.Checkpoint) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, wait := range c.Mesh.Waits {
			if !wait.Wakes() {
				continue
			}
			if to, err := l.host.node.subjects.Reply(wait.Entity, wait.TaskID); err == nil && !yield(to) {
				return
			}
		}
	}
}

// reasonToWake returns why a waiting run goes on, "" while it waits.
func (l *lane) reasonToWake(ctx context.Context, c *state.Checkpoint) (string, error) {
	now := l.clock.now()
	if why := run.Due(c, now); why != "" {
		return why, nil
	}
	task, err := envelope.ParseStored(c.Mesh.Task)
	if err != nil {
		return "", err
	}
	for _, wait := range c.Mesh.Waits {
		if !wait.Wakes() {
			continue
		}
		answer, err := l.host.node.answers.First(ctx, l.cfg.Replies, wait, c.Mesh.Entity, task.Corr)
		if err != nil {
			return "", err
		}
		if answer != nil {
			return clip.Text(wait.Entity, 128) + " has answered", nil
		}
		if run.Expired(wait, now) {
			return "no answer of " + clip.Text(wait.Entity, 128) + " in time", nil
		}
	}
	return "", nil
}

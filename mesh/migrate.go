package mesh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// The transfer of a run (docs/migration.md) begins like a pause: the handler stops at its
// next step, or in the middle of a generation, and its checkpoint names the target. Then
// the worker that holds the run's message offers the run to the target. If the target
// accepts, this worker drops the message without an ack; if not, it goes on with the run.
// The owner is decided by the run's record alone, each time by compare-and-swap.

// Remotes returns a client for the receiver of another platform, by its URL. It fails if
// transfers to that URL are not allowed.
type Remotes func(url string) (*handoff.Client, error)

// moveTimeout bounds one attempt to transfer a run. Meanwhile the run is stopped.
const moveTimeout = 2 * time.Minute

// captured prepares a checkpoint for a transfer: the run is stopped, and the checkpoint
// holds all text that was sent to the task's sender. This worker sends no more text. r.mu
// is held.
func (r *Run) captured(c *state.Checkpoint) error {
	if r.task.Streaming() {
		if err := r.stream.Seal(r.lane.ctx); err != nil {
			return err
		}
		r.stream.Save(c)
	}
	run.Capture(c, r.lane.host.id, uuid.NewString(), r.lane.clock.now())
	return nil
}

// transfers moves runs to other workers and platforms, and accepts them from other workers.
type transfers struct {
	*holdings
	lane    *lane
	replies *replyWriter
}

// runOf makes a Run of a record that this worker owns, or may soon own. Its handler
// has not begun.
func (tr *transfers) runOf(c *state.Checkpoint, rev uint64, hold *hold) (*Run, error) {
	env, err := envelope.ParseLimits(c.Mesh.Task, tr.host.node.limits)
	if err != nil {
		return nil, fmt.Errorf("task of run %s: %w", c.Doc.RunID, err)
	}
	m := &c.Mesh
	t := &Task{Envelope: capped(env, envelope.Priority(m.Priority)), KeyID: m.KeyID, host: tr.host, cbor: m.CBOR}
	r := newRun(tr.lane, t, hold)
	r.id.Run, r.stored = c.Doc.RunID, c
	t.queued = tr.clock.past(m.StoredAt)
	r.refusal = admission{t}.refusal()
	r.ran, r.begun, r.restored = m.Ran, time.Now(), run.Progressed(c)
	r.stream.Resume(c)
	r.keep(c, rev)
	return r, nil
}

// startTransfer transfers a run whose handler has stopped for it.
func (tr *transfers) startTransfer(old *Run) {
	r, err := tr.runOf(old.cp.Load(), old.rev, old.hold)
	if err != nil {
		tr.nakFailed(old, err)
		return
	}
	tr.transfer(r)
}

// transfer brings a parked run to its target; if it is there already, it relays the
// replies back. It owns the run's message, and answers it at the end.
func (tr *transfers) transfer(r *Run) {
	tr.own(r)
	tr.lane.guardian.Need()
	ctx, cancel := tr.ownedContext(r)
	defer cancel()
	switch run.Next(r.cp.Load().Mesh.Migration) {
	case run.MoveToFile:
		tr.unlist(r)
		tr.ack(r.hold)
		r.observe(PointAcked)
	case run.MoveDecide:
		tr.decide(ctx, r)
	case run.MoveRelay:
		tr.relay(ctx, r)
	case run.MoveToRemote:
		tr.send(ctx, r)
	case run.MoveToWorker:
		tr.offer(ctx, r)
	}
}

// ownedContext returns a context that ends when the run is lost or the worker drains.
func (tr *transfers) ownedContext(r *Run) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(tr.ctx)
	stop := context.AfterFunc(r.task.context(), func() { cancel(ErrLost) })
	gone := make(chan struct{})
	tr.work.Go(func() {
		select {
		case <-tr.lane.drawn:
			cancel(errStopped)
		case <-gone:
		}
	})
	return ctx, func() {
		stop()
		close(gone)
		cancel(nil)
	}
}

// advance writes the next phase of a run's transfer by compare-and-swap.
func (tr *transfers) advance(r *Run, phase state.Phase, change func(*state.Checkpoint) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observe(PointBeforeMove + Point(phase))
	r.begun = time.Now() // the time of a transfer does not count as running time
	err := r.write(tr.ctx, func(c *state.Checkpoint) error {
		run.Advance(c, phase, tr.clock.now())
		if change != nil {
			return change(c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.observe(PointAfterMove + Point(phase))
	tr.host.log.Info("run transfer: new phase", "run", r.id.Run, "phase", string(phase), "to", r.cp.Load().Mesh.Migration.To)
	return nil
}

// abortTransfer ends a failed transfer. If this worker still owns the run, it resumes
// what it was doing before.
func (tr *transfers) abortTransfer(r *Run, why error) {
	reason := clip.Text(fault.ForPeer(why).Message, 128)
	if e := new(transfer.Error); errors.As(why, &e) {
		reason = clip.Text(e.Error(), 128)
	}
	var runs bool
	err := tr.advance(r, state.PhaseAborted, func(c *state.Checkpoint) error {
		runs = run.Back(c, tr.host.id, tr.clock.now(), reason)
		return nil
	})
	switch {
	case errors.Is(err, ErrLost):
		return // the target or another worker owns it
	case err != nil:
		tr.nakFailed(r, err)
		return
	}
	tr.host.log.Warn("run did not move", "run", r.id.Run, "err", why)
	if !runs {
		tr.unlist(r)
		tr.ack(r.hold)
		tr.lane.waits.CheckSoon(r.id.Run) // the answer may have come meanwhile
		return
	}
	tr.lane.resume(r)
}

// resume puts a run that this worker has claimed into the agent's queue.
func (l *lane) resume(r *Run) {
	c := r.cp.Load()
	fresh, err := l.transfers.runOf(c, r.rev, r.hold)
	if err == nil && fresh.task.Streaming() {
		err = fresh.readStream(l.ctx, c)
	}
	if err != nil {
		l.nakFailed(r, err)
		return
	}
	fresh.claimedEarly = true
	l.own(fresh)
	l.deliveries.countWaiting(fresh, 1)
	l.host.running.add(fresh.task)
	if l.deliveries.await(fresh.task) {
		return
	}
	l.deliveries.countWaiting(fresh, -1)
	l.releaseClaimed(fresh)
}

package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/migration"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// transfers hands stopped runs to package migration, which moves them to other workers and
// platforms, and is the [migration.Host] of a lane.
type transfers struct {
	*holdings
	lane  *lane
	mover *migration.Mover
}

func newTransfers(l *lane) *transfers {
	h, d := l.host, l.cfg
	tr := &transfers{holdings: l.holdings, lane: l}
	tr.mover = migration.New(migration.Config{
		Entity: h.Entity, AgentID: h.AgentID, Worker: h.id, Platform: d.Platform, Version: h.node.cfg.Version,
		Signer: h.Signer, Operators: d.Operators, Remotes: d.Remotes,
		States: d.States, Codec: l.records.codec, Replies: d.Replies, Answers: h.node.answers, Log: h.log,
	}, tr)
	return tr
}

// runOf makes a Run of a record that this worker owns, or may soon own. Its handler
// has not begun.
func (tr *transfers) runOf(c *state.Checkpoint, rev uint64, hold *hold) (*Run, error) {
	env, err := envelope.ParseStored(c.Mesh.Task)
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

// startTransfer transfers a run whose handler has stopped for it. It owns the run's
// message, and answers it at the end.
func (tr *transfers) startTransfer(old *Run) {
	r, err := tr.runOf(old.cp.Load(), old.rev, old.hold)
	if err != nil {
		tr.nakFailed(old, err)
		return
	}
	tr.own(r)
	tr.lane.guardian.Need()
	ctx, cancel := tr.ownedContext(r)
	defer cancel()
	tr.mover.Move(ctx, &migration.Run{Owned: stopped{tr, r}, Task: r.task.Envelope, Ack: r.hold.AckSubject, Deadline: r.deadline})
}

// ownedContext returns a context that ends when the run is lost or the worker drains.
func (tr *transfers) ownedContext(r *Run) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(tr.ctx)
	keep := context.AfterFunc(r.task.context(), func() { cancel(ErrLost) })
	stay := context.AfterFunc(tr.lane.drawn, func() { cancel(errStopped) })
	return ctx, func() {
		keep()
		stay()
		cancel(nil)
	}
}

// offered accepts or refuses a run that another worker offers to this instance. It blocks
// on the store, so it must not run on the goroutines of control messages.
func (tr *transfers) offered(t *Task) {
	tr.mover.Offered(tr.ctx, t.Envelope, func(payload json.RawMessage) { tr.host.succeed(t, payload) }, func(err error) { tr.host.fail(t, err) })
}

// Now returns the time by the server's clock.
func (tr *transfers) Now() time.Time { return tr.clock.now() }

// Ask sends a task to all workers of the agent, and returns the first reply.
func (tr *transfers) Ask(ctx context.Context, task *envelope.Envelope, wait time.Duration) (*envelope.Envelope, error) {
	if err := tr.host.sign(task); err != nil {
		return nil, err
	}
	return tr.host.node.sender.RequestControl(ctx, task, wait)
}

// Sendable fails with E_TOO_LARGE if a reply of size bytes does not fit a message.
func (tr *transfers) Sendable(size int) error { return tr.host.node.sendable(size, 0) }

// Room fails with E_BUSY if this worker has no room for another run.
func (tr *transfers) Room() error {
	if !tr.lane.roomForRun() {
		return busy(tr.host.Entity)
	}
	return nil
}

// Claim claims an offered run, see [migration.Host].
func (tr *transfers) Claim(ctx context.Context, rec state.Record, c *state.Checkpoint, ack string, claimed func(epoch uint64)) error {
	tr.cfg.observe(PointVerified, rec.ID)
	delivery, err := tr.cfg.Queue.Adopt(tr.host.Entity, ack)
	if err != nil {
		return err
	}
	hold := tr.hold(delivery)
	defer hold.tally.add(-1) // see hold
	_ = hold.InProgress()
	run.Accept(c, tr.host.id, hold.Seq, tr.clock.now())
	rev, _, err := tr.records.put(ctx, rec.ID, rec.Revision, c)
	if err != nil {
		tr.dropHold(hold)
		return fmt.Errorf("claim run %s: %w", rec.ID.Run, err)
	}
	tr.cfg.observe(PointMoved, rec.ID)
	r, err := tr.runOf(c, rev, hold)
	if err != nil {
		tr.dropHold(hold)
		return err
	}
	claimed(r.Epoch())
	tr.lane.resume(r)
	return nil
}

// Background runs f on another goroutine.
func (tr *transfers) Background(f func(context.Context)) { tr.work.Go(func() { f(tr.ctx) }) }

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
	l.host.track(fresh.task)
	if l.deliveries.await(fresh) {
		return
	}
	l.deliveries.countWaiting(fresh, -1)
	l.releaseClaimed(fresh)
}

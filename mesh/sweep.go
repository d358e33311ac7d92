package mesh

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// sweeps looks from time to time for runs that should go on and have no message: the
// queue was purged or lost, or a worker died between the record of a resumed run and
// its message. It requeues them.
func (l *lane) sweeps() {
	// Replicas that were started together do not sweep together; and however
	// many runs there are, sweeping takes a small part of the time.
	pause := l.cfg.Sweep
	for sleep(l.ctx, pause/2+rand.N(pause)) == nil {
		began := time.Now()
		n, err := l.sweep(l.ctx)
		switch {
		case err != nil && l.ctx.Err() == nil:
			l.host.log.Warn("sweep of the runs", "err", err)
		case n > 0:
			l.host.log.Warn("runs without a message queued anew", "runs", n)
			l.tel.swept(l.host, n)
		}
		pause = max(l.cfg.Sweep, 20*time.Since(began))
	}
}

// sweep requeues the runs that need it, and returns how many.
func (l *lane) sweep(ctx context.Context) (queued int, err error) {
	settled := 2 * l.queue.Lease() // younger ones may be on their way
	began, noted := l.clock.now(), map[string]bool{}
	for rec, err := range l.open(ctx) {
		if err != nil {
			return queued, err
		}
		if l.run(rec.ID.Run) != nil || l.clock.now().Sub(rec.Time) < settled {
			continue
		}
		h, err := rec.Header()
		if err != nil || state.Terminal(h.Status) {
			continue
		}
		if h.Status == aaif.RunAwaitingApproval {
			l.waits.check(rec.ID.Run) // the connection may have lost an answer
		}
		if h.Work != 0 && run.Carried(h.Status) {
			if there, err := l.messageQueued(ctx, rec.Time, h.Work); err != nil {
				return queued, err
			} else if there != run.No || l.alive(ctx, h.Owner) {
				continue
			}
		}
		if h.Status == aaif.RunPaused && h.Work == 0 {
			noted[rec.ID.Run] = true // maybe: see requeue
		}
		again, err := l.requeue(ctx, rec)
		if err != nil {
			l.host.log.Warn("run not queued anew", "run", rec.ID.Run, "err", err)
		}
		if again {
			queued++
		}
	}
	l.notes.keep(noted, began.Add(-settled))
	return queued, nil
}

// alive reports whether the owner that a record names answers. If it does, it will
// bring the run to its end even without a message.
func (l *lane) alive(ctx context.Context, owner string) bool {
	if owner == "" || owner == l.host.id {
		return false // of our own, those that live are known
	}
	return l.ping(ctx, owner, aliveWait) == nil
}

// requeue gives a run a message, if it should have one and has none, and reports
// whether it did.
func (l *lane) requeue(ctx context.Context, rec state.Record) (bool, error) {
	c, err := l.codec.Read(rec)
	if err != nil {
		return false, err
	}
	switch need, why := run.Needs(c, l.clock.now()); need {
	case run.NeedsNothing:
		return false, nil
	case run.NeedsNotes:
		return false, l.renewNotes(ctx, rec, c)
	case run.NeedsWake:
		run.Wake(c, why)
		rev, _, err := l.put(ctx, rec.ID, rec.Revision, c)
		if err != nil {
			return false, err
		}
		rec.Revision = rev
	}
	return l.requeueWaiting(ctx, c, rec.Revision)
}

// A sweeper is a store that removes the oldest ended runs before it is full: a full
// store would stop every lane.
type sweeper interface {
	Sweep(ctx context.Context, opts jetstream.SweepOptions) (jetstream.Swept, error)
}

// compacts keeps the store of runs from getting full. One lane of a node does so for
// all.
func (l *lane) compacts() {
	store, ok := l.cfg.States.(sweeper)
	if !ok {
		return
	}
	const pause = 5 * time.Second
	for sleep(l.ctx, pause/2+rand.N(pause)) == nil {
		last, now := l.host.node.compacted.Load(), time.Now().UnixNano()
		if now-last < int64(pause/2) || !l.host.node.compacted.CompareAndSwap(last, now) {
			continue
		}
		swept, err := store.Sweep(l.ctx, jetstream.SweepOptions{})
		if err != nil {
			l.host.log.Debug("store of runs not swept", "err", err)
			continue
		}
		l.tel.filled(swept.Used)
		if swept.Runs > 0 {
			l.host.log.Info("ended runs deleted", "runs", swept.Runs, "objects", swept.Objects)
		}
	}
}

// open yields the entity's runs that have not ended.
func (l *lane) open(ctx context.Context) iter.Seq2[state.Record, error] {
	if s, ok := l.cfg.States.(interface {
		Open(ctx context.Context, entity string) iter.Seq2[state.Record, error]
	}); ok {
		return s.Open(ctx, l.host.Entity)
	}
	return func(yield func(state.Record, error) bool) {
		for rec, err := range l.cfg.States.List(ctx, l.host.Entity) {
			if err == nil {
				if h, err := rec.Header(); err != nil || state.Terminal(h.Status) {
					continue
				}
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// messageQueued reports whether the message that a run's record names is still in the queue. A
// worker with permissions for its own entity alone may not ask for a message by its
// sequence: then the state of its consumers tells for sure when the message is gone, and
// until then it is run.Maybe. since is a time, by the server's clock, at which the message
// was already stored.
func (l *lane) messageQueued(ctx context.Context, since time.Time, work uint64) (run.Fact, error) {
	there, err := l.cfg.Queue.Has(ctx, work)
	switch {
	case errors.Is(err, jetstream.ErrDenied):
		if l.queue.Gone(work, since) {
			return run.No, nil
		}
		return run.Maybe, nil
	case err != nil:
		return 0, err
	case there:
		return run.Yes, nil
	}
	return run.No, nil
}

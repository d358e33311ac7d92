package mesh

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// requeue requeues the message of a run that goes on, whose record is c at
// revision rev, and writes the message's sequence into the record for the sweep. fresh
// reports whether the message is new.
func (s *records) requeue(ctx context.Context, c *state.Checkpoint, rev uint64) (fresh bool, err error) {
	if rev > 0 {
		s.cfg.observe(PointRequeue, c.ID())
	}
	stored, err := client.Requeue(ctx, s.cfg.Queue, c)
	if err != nil || rev == 0 {
		return err == nil, err
	}
	next := c.Clone()
	next.Mesh.Work, next.Mesh.Redelivered = stored.Seq, 0
	// If a worker has claimed the run meanwhile, the sequence is no longer needed.
	if _, _, err := s.put(ctx, next.ID(), rev, next); err != nil && !errors.Is(err, state.ErrChanged) {
		s.log.Debug("message of a run not noted", "run", c.Doc.RunID, "err", err)
	}
	return !stored.Duplicate, nil
}

// goOn stores c, the checkpoint of a run that goes on, in place of rec, and requeues the run's
// message. Where ctx ends meanwhile, the worker requeues the run afterwards, if c was stored.
func (hs *holdings) goOn(ctx context.Context, rec state.Record, c *state.Checkpoint) error {
	rev, _, err := hs.records.put(ctx, rec.ID, rec.Revision, c)
	if err == nil {
		if _, err := hs.records.requeue(ctx, c, rev); err != nil {
			hs.requeueLater(c, err)
		}
		return nil
	}
	if ctx.Err() != nil {
		hs.requeueLater(c, err)
	}
	return err
}

// requeueLater requeues the run of c, unless it has its message or needs none any more, and tries
// until it is known whether it succeeded. Commands may have changed the record meanwhile: what
// they wrote stays. why is the error of the first attempt.
func (hs *holdings) requeueLater(c *state.Checkpoint, why error) {
	hs.host.log.Debug("run not queued yet", "run", c.Doc.RunID, "err", why)
	hs.work.Go(func() {
		err := hs.records.persist(hs.ctx, func() error {
			rec, now, err := hs.readSince(hs.ctx, c)
			if err == nil && run.LacksMessage(now, c) {
				_, err = hs.records.requeue(hs.ctx, now, rec.Revision)
			}
			if errors.Is(err, state.ErrNotFound) {
				return nil
			}
			return err
		})
		if err != nil {
			hs.host.log.Warn("run not queued, the sweep will do it", "run", c.Doc.RunID, "err", err)
		}
	})
}

// lateWrite bounds how long after its time a write may be found.
const lateWrite = 5 * time.Second

// readSince reads the record of a run in which c was written, or may have been: the write may
// be under way, and a replica may answer that does not have it. An older record counts only after
// lateWrite.
func (hs *holdings) readSince(ctx context.Context, c *state.Checkpoint) (state.Record, *state.Checkpoint, error) {
	until := time.Now().Add(lateWrite)
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		rec, err := hs.cfg.States.Get(ctx, c.ID())
		if err != nil {
			return rec, nil, err
		}
		now, err := hs.records.read(rec)
		if err != nil || now.Mesh.Epoch >= c.Mesh.Epoch || time.Now().After(until) || !pause.For(ctx, wait) {
			return rec, now, err
		}
	}
}

// open yields the entity's runs that have not ended.
func (s *records) open(ctx context.Context) iter.Seq2[state.Record, error] {
	return s.states.Open(ctx, s.entity)
}

// messageQueued reports whether the message that a run's record names, with the task of the
// run, is still in the queue. A worker with permissions for its own entity only may not read a message by its
// sequence. For such a worker the state of its consumers proves when the message is gone;
// until then the result is run.Maybe. since is a time, by the server's clock, at which
// the message was already stored.
func (s *records) messageQueued(ctx context.Context, since time.Time, work uint64, taskID string) (run.Fact, error) {
	there, err := s.cfg.Queue.Has(ctx, s.entity, work, func(m jetstream.Message) bool {
		env, _, err := wire.Decode(&nats.Msg{Data: m.Data, Header: m.Header}, envelope.Limits{})
		return err != nil || taskID == "" || env.ID == taskID
	})
	switch {
	case errors.Is(err, jetstream.ErrDenied):
		if s.queue.Gone(work, since) {
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

package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// The claim of a new task is not written when the task begins, but as part of its
// first checkpoint, or after claimSoon: this halves the writes of a task of one short
// step. It is safe because the run has no effect before its first write: an effect needs
// its intent in the record, and a stream needs its claim. The first write is a
// compare-and-swap on "no record", so of all workers that began the run one goes on.
// The claim is delayed only where the store can rule out a record of the run cheaply
// and for certain, which a store with one replica can.

// claimSoon is how long the claim of a run may stay unwritten before it is written on
// its own, so that people and other workers see it.
const claimSoon = 250 * time.Millisecond

// mayDelayClaim reports whether the run's claim may be written with its first
// checkpoint. The task must be new according to its message and the store, and its
// Nats-Msg-Id must have kept a second message with its id out of the queue: otherwise
// two workers could begin on one message each. A streaming task needs its claim at
// once, because stream envelopes carry the claim's epoch.
func (r *Run) mayDelayClaim(ctx context.Context) bool {
	return r.hold.First && r.hold.Header.Get(nats.MsgIdHdr) != "" && !r.task.Streaming() && r.lane.records.states.Absent(ctx, r.id)
}

// writeClaims writes the claims that are older than claimSoon.
func (hs *holdings) writeClaims() {
	for _, r := range hs.claimed() {
		if r.unwritten.Load() && hs.age()-time.Duration(r.seen.Load()) > claimSoon/2 {
			hs.work.Go(func() { r.writeClaim(hs.ctx) })
		}
	}
}

func (r *Run) writeClaim(ctx context.Context) {
	if r.checking.Swap(true) {
		return
	}
	defer r.checking.Store(false)
	err := r.Claim(ctx)
	if err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrParked) {
		r.lane.host.log.Warn("claim not written", "run", r.id.Run, "err", err)
	}
}

// Claim makes sure that the claim of the run is written. A new task may begin before
// that, because every effect through the mesh waits for it. A handler that has other
// effects, and tells attempts apart by Epoch or Restored, calls Claim first: otherwise
// an owner that died at once is not counted. It fails with [ErrLost] where another
// worker owns the run.
func (r *Run) Claim(ctx context.Context) error {
	if !r.unwritten.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil || r.rev > 0 {
		return r.end
	}
	return r.write(ctx, func(*state.Checkpoint) error { return nil })
}

// resolveConflict handles a record that differs from this worker's last write. It
// returns nil if this worker still owns the run: the caller may then write again. r.mu
// is held.
func (r *Run) resolveConflict(ctx context.Context, rec *state.Record) error {
	if r.rev > 0 || rec == nil {
		return r.reload(rec)
	}
	c, err := r.lane.records.read(*rec)
	if err != nil {
		return fmt.Errorf("first checkpoint of run %s: %w", r.id.Run, err)
	}
	if slices.ContainsFunc(r.tried, func(w triedWrite) bool { return w.in(c) }) { // it was stored, but the confirmation was lost
		return r.reload(rec)
	}
	v := run.Mine
	if c.Mesh.Task != nil || c.Terminal() {
		v, _, err = r.judge(ctx, rec, c)
		switch {
		case err != nil:
			return err
		case v == run.Mine, v == run.Older, v == run.Moving:
			// Owned by another worker, or by this one under a later delivery.
			r.lose()
			return ErrLost
		}
		r.found(rec, c)
	} else if v, err = r.claimOver(ctx, rec, nil); err != nil || v == run.Mine {
		return err // commands were noted before the first record
	}
	r.task.claim()
	r.stop(ErrLost)
	r.lane.workOn(r.tally, func() { r.lane.applyVerdict(r, v, nil) })
	return ErrLost
}

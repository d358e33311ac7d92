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

// The claim of a new task is not written when it begins, but as part of its
// first checkpoint, or after claimSoon: for a task of one short step that is
// half of the writes. Nothing is lost by that. Until then the run has done
// nothing that counts: an effect needs its intent in the record first, and a
// stream its claim. That first write swaps in the run's first record, so of all
// who began the run one goes on. It is so where the store says cheaply, and for
// sure, that it has nothing of the run; that is where it has one replica.

// claimSoon is when the claim of a run is written that has written nothing else,
// so that people and other workers see it.
const claimSoon = 250 * time.Millisecond

// absenceChecker is a store that can say cheaply that it has nothing of a run.
type absenceChecker interface {
	Absent(ctx context.Context, id state.ID) bool
}

// mayDelayClaim reports whether the run's claim may be written with its first
// checkpoint: the task is new, as far as its message and the store tell, and the
// server has let no second message with its id into the queue, which a
// Nats-Msg-Id makes sure of: two workers could begin on one each. A stream is told
// under the epoch of a claim that is written.
func (r *Run) mayDelayClaim(ctx context.Context) bool {
	return r.lane.absence != nil && r.hold.First && r.hold.Header.Get(nats.MsgIdHdr) != "" && !r.task.Streaming() && r.lane.absence.Absent(ctx, r.id)
}

// writeClaims writes the claims that have waited for long enough.
func (l *lane) writeClaims() {
	for _, r := range l.claimed() {
		if r.unwritten.Load() && time.Since(time.Unix(0, r.seen.Load())) > claimSoon/2 {
			l.work.Go(func() { r.writeClaim(l.ctx) })
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

// Claim makes sure that the claim of the run is written. A new task may begin
// before it is, for all that a handler does by way of the mesh waits for it. A
// handler that acts on the world by itself, and tells attempts apart by Epoch or
// Restored, calls it first: otherwise an owner that died at once is not counted.
// It fails with [ErrLost] where another worker owns the run.
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

// resolveConflict hears that the record is not what this worker wrote last. nil: the run
// is still ours, and what was to be written may be tried again. r.mu is held.
func (r *Run) resolveConflict(ctx context.Context, rec *state.Record) error {
	if r.rev > 0 || rec == nil {
		return r.reload(rec)
	}
	c, err := r.lane.codec.Read(*rec)
	if err != nil {
		return fmt.Errorf("first checkpoint of run %s: %w", r.id.Run, err)
	}
	if slices.Contains(r.tried, c.Doc.StateID) { // it was stored, and nobody told us
		return r.reload(rec)
	}
	v := run.Mine
	if c.Mesh.Task != nil {
		v, _, err = r.judge(ctx, rec, c)
		switch {
		case err != nil:
			return err
		case v == run.Mine, v == run.Older, v == run.Moving:
			// Somebody else's, or this worker's own under a later delivery.
			r.lose()
			return ErrLost
		}
	} else if v, err = r.claimOver(ctx, rec, nil); err != nil || v == run.Mine {
		return err // commands were noted before the first record
	}
	r.task.claim()
	r.stop(ErrLost)
	r.lane.work.Go(func() { r.lane.applyVerdict(r, v, nil) })
	return ErrLost
}

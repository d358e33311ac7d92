package handoff

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
)

// orphanPause is how often a receiver looks for orphans.
const orphanPause = time.Hour

// orphans says when a receiver looks for orphans next. An orphan is a run that a receiver has
// prepared, and whose handoff was never accepted and has no record any more, or was refused: the
// receiver died, or its store was away, before it could delete the run. Workers do not touch such
// a run, and refuse commands for it.
type orphans struct {
	mu   sync.Mutex
	next time.Time
}

// due reports whether to look now. If it returns true, it does so again after [Stay], or after
// orphanPause if found was called meanwhile.
func (o *orphans) due(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Before(o.next) {
		return false
	}
	o.next = now.Add(Stay)
	return true
}

// found says that the receiver has looked at all runs.
func (o *orphans) found(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = now.Add(orphanPause)
}

// endOrphans deletes orphans, if it is time to look for them. It returns how many handoffs it has
// refused for that.
func (r *Receiver) endOrphans(ctx context.Context) (refused int, err error) {
	now := r.cfg.Now(ctx)
	if !r.orphans.due(now) {
		return 0, nil
	}
	all, err := r.preparedRuns(ctx)
	if err == nil {
		r.orphans.found(now)
	}
	failed := []error{err}
	for _, c := range all {
		done, err := r.endOrphan(ctx, c)
		if done {
			refused++
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("delete run %.50q, which was never accepted: %w", c.Doc.RunID, err))
		}
	}
	return refused, errors.Join(failed...)
}

// endOrphan deletes a prepared run if it is an orphan. A handoff has a record before its run is
// prepared, and until the run is started. If there is none, endOrphan first writes one that refuses
// the handoff. This fails, and the run stays, if there is a record after all, or if another receiver
// writes one at that moment. After it, neither the source nor a receiver that was suspended while it
// accepted the run can accept it.
func (r *Receiver) endOrphan(ctx context.Context, c *state.Checkpoint) (refused bool, err error) {
	h, err := r.load(ctx, c.Mesh.Migration.ID)
	switch {
	case errors.Is(err, ErrUnknown):
		// own: this refusal must not fail because the issuer has no room left.
		h = &record{id: c.Mesh.Migration.ID, c: c, own: true}
		err = r.refuse(ctx, h, "the receiver was down until the handoff had expired")
		if errors.Is(err, state.ErrChanged) {
			return false, nil
		}
		refused = err == nil
	case err == nil && h.migration().Phase != state.PhaseRefused:
		return false, nil
	}
	if err != nil {
		return refused, err
	}
	return refused, r.drop(ctx, h, c.ID())
}

// A newestLister is a store that lists runs by their status, and reads only the headers of others.
type newestLister interface {
	Latest(ctx context.Context, entity string, want func(aaif.RunStatus) bool) iter.Seq2[state.Record, error]
}

// preparedRuns returns the runs that receivers of this platform have prepared and not started,
// without their documents. It leaves out those that this process cannot read.
func (r *Receiver) preparedRuns(ctx context.Context) ([]*state.Checkpoint, error) {
	migrating := func(s aaif.RunStatus) bool { return s == aaif.RunMigrating }
	list := r.cfg.States.List(ctx, "")
	if store, ok := r.cfg.States.(newestLister); ok {
		list = store.Latest(ctx, "", migrating)
	}
	var all []*state.Checkpoint
	for rec, err := range list {
		if err != nil {
			return all, fmt.Errorf("look for runs that were never accepted: %w", err)
		}
		head, err := rec.Header()
		if err != nil || !migrating(head.Status) {
			continue
		}
		c, err := r.cfg.Codec(head.Entity).Read(rec)
		if err != nil {
			continue
		}
		if m := c.Mesh.Migration; m != nil && m.Phase == state.PhaseStaged && m.Target == r.cfg.Platform {
			bare(c)
			all = append(all, c)
		}
	}
	return all, nil
}

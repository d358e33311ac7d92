package handoff

import (
	"context"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/state"
)

// Collect finishes handoffs that were interrupted: it refuses those that have waited for longer
// than [Stay], and starts accepted runs whose receiver died before it started them. Call it
// periodically; concurrent calls are safe. After an error with one handoff it goes on with the
// others. It also counts again what each issuer stores, and deletes documents that nothing refers
// to. At first and then every hour it looks for runs that a receiver has stored for a handoff that
// was never accepted, and whose record has expired since: it deletes them, however old they are.
func (r *Receiver) Collect(ctx context.Context) (refused, started int, err error) {
	var failed []error
	kept, err := r.count(ctx, func(err error) { failed = append(failed, err) })
	if err != nil {
		failed = append(failed, err)
	}
	for _, h := range kept {
		m := h.migration()
		age := r.cfg.Now(ctx).Sub(m.Since)
		switch {
		case (m.Phase == state.PhaseReceiving || m.Phase == state.PhaseStaged) && age > Stay:
			if _, err = r.Refuse(ctx, h.id, m.Issuer, "the source did not come back"); err == nil {
				refused++
			} else if errors.Is(err, ErrAccepted) {
				err = nil
			}
		case m.Phase == state.PhaseRefused && age < 2*Stay:
			err = r.drop(ctx, h, h.c.ID()) // its refusal was interrupted; later endOrphans does this
		case m.Phase == state.PhaseAccepted && age > r.cfg.Idle:
			if _, err = r.Commit(ctx, h.id); err == nil {
				started++
			}
		default:
			err = nil
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	orphans, err := r.endOrphans(ctx)
	if refused += orphans; err != nil {
		failed = append(failed, err)
	}
	if r.cfg.Tidy != nil {
		if err := r.cfg.Tidy(ctx); err != nil {
			failed = append(failed, fmt.Errorf("delete the documents of refused handoffs: %w", err))
		}
	}
	return refused, started, errors.Join(failed...)
}

// count reads all records, for the shares of issuers, and returns those that are not running,
// without their documents. It calls unreadable for a record that it cannot read.
func (r *Receiver) count(ctx context.Context, unreadable func(error)) ([]*record, error) {
	next := newShares()
	var kept []*record
	for rec, err := range r.cfg.Handoffs.List(ctx, holder) {
		if err != nil {
			return kept, fmt.Errorf("list the handoffs that are kept: %w", err)
		}
		h, err := r.decode(rec)
		if err != nil {
			unreadable(err)
			continue
		}
		next.set(h.id, holding{h.migration().Issuer, h.pending(), int64(len(rec.Data))})
		if h.migration().Phase != state.PhaseRunning {
			bare(h.c)
			kept = append(kept, h)
		}
	}
	r.shares.take(next)
	return kept, nil
}

package handoff

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// Errors of a receiver, besides those of package state.
var (
	// ErrBusy: too many streams are open.
	ErrBusy = errors.New("the receiver is busy")
	// ErrUnknown: there is no handoff with this id.
	ErrUnknown = errors.New("no such handoff")
	// ErrAccepted: the run belongs to this platform and cannot be refused any more.
	ErrAccepted = errors.New("the handoff has been accepted")
	// ErrNotStaged: the document has not arrived completely.
	ErrNotStaged = errors.New("the handoff is not staged")
	// ErrNoVerdict: the handoff was neither accepted nor refused.
	ErrNoVerdict = errors.New("there is no verdict yet")
)

// A record is the stored state of one handoff: a checkpoint whose Migration has the phase. Until
// the run is accepted or refused, nothing else of it is stored here.
type record struct {
	id  string // of the token
	c   *state.Checkpoint
	rev uint64
	own bool // an operator of this platform has imported it, so its issuer's share does not apply
}

func (h *record) migration() *state.Migration { return h.c.Mesh.Migration }

func (h *record) status() Status {
	return Status{
		Handoff: h.id, Phase: h.migration().Phase, Run: h.c.Doc.RunID, Entity: h.c.Mesh.Entity, Reason: h.migration().Detail,
	}
}

// key returns the id under which the record is stored.
func key(id string) state.ID { return state.ID{Entity: holder, Run: id} }

// load reads the record of a handoff.
func (r *Receiver) load(ctx context.Context, id string) (*record, error) {
	rec, err := r.cfg.Handoffs.Get(ctx, key(id))
	if errors.Is(err, state.ErrNotFound) {
		return nil, fmt.Errorf("handoff %.50q: %w", id, ErrUnknown)
	}
	if err != nil {
		return nil, err
	}
	return r.decode(rec)
}

func (r *Receiver) decode(rec state.Record) (*record, error) {
	head, err := rec.Header()
	if err != nil {
		return nil, fmt.Errorf("record of handoff %.50q: %w", rec.ID.Run, err)
	}
	run := rec
	run.ID = head.ID() // the record is stored under the token's id, and has the run's own id inside
	c, err := r.cfg.Codec(head.Entity).Read(run)
	if err != nil {
		return nil, fmt.Errorf("record of handoff %.50q: %w", rec.ID.Run, err)
	}
	if m := c.Mesh.Migration; m == nil || m.ID != rec.ID.Run {
		return nil, fmt.Errorf("record of handoff %.50q: the run is not that of this handoff", rec.ID.Run)
	}
	return &record{id: rec.ID.Run, c: c, rev: rec.Revision}, nil
}

// write stores the record in its next phase. change gets a copy of the state and makes
// the other changes. The error is state.ErrChanged if another process has written the
// record meanwhile.
func (r *Receiver) write(ctx context.Context, h *record, phase state.Phase, change func(*state.Checkpoint)) error {
	next := h.c.Clone()
	if change != nil {
		change(next)
	}
	m := next.Mesh.Migration
	m.Phase, m.Since = phase, r.cfg.Now(ctx).UTC()
	data, err := r.cfg.Codec(next.Mesh.Entity).Over(h.rev).Encode(next)
	if err != nil {
		return err
	}
	undo, err := r.reserve(ctx, h, &record{id: h.id, c: next, own: h.own}, len(data))
	if err != nil {
		return err
	}
	r.cfg.Observe(ctx, phase, false)
	rev, err := r.put(ctx, lasting{r.cfg.Handoffs, r.life(h, phase)}, key(h.id), h.rev, data)
	if err != nil {
		undo()
		return err
	}
	h.c, h.rev = next, rev
	r.cfg.Observe(ctx, phase, true)
	if store, ok := r.cfg.Handoffs.(compacter); ok && (phase == state.PhaseRunning || phase == state.PhaseRefused) {
		if err := store.Compact(ctx, key(h.id)); err != nil {
			r.cfg.Logger.Warn("the document of a handoff is still kept", "handoff", h.id, "err", err)
		}
	}
	r.cfg.Logger.Info("handoff", "handoff", h.id, "phase", string(phase), "entity", next.Mesh.Entity, "run", next.Doc.RunID, "reason", m.Detail)
	return nil
}

// A compacter is a store that can delete a record's earlier revisions.
type compacter interface {
	Compact(ctx context.Context, id state.ID) error
}

// put stores data over a revision. If no answer comes, it reads the record: no other
// process writes the same data.
func (r *Receiver) put(ctx context.Context, store state.Store, id state.ID, prev uint64, data []byte) (uint64, error) {
	rev, err := store.Put(ctx, id, prev, data)
	if !errors.Is(err, state.ErrUncertain) {
		return rev, err
	}
	rec, getErr := store.Get(ctx, id)
	switch {
	case getErr == nil && string(rec.Data) == string(data):
		return rec.Revision, nil
	case getErr == nil && rec.Revision > prev:
		return 0, state.ErrChanged
	}
	return 0, err
}

// giveUp refuses a handoff whose stream failed, and returns the error for the answer. Its record,
// without the document, stays, so that the token counts as used.
func (r *Receiver) giveUp(ctx context.Context, h *record, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := r.refuse(ctx, h, transfer.NewError(why).Message); err != nil && !errors.Is(err, state.ErrChanged) {
		r.cfg.Logger.Warn("handoff not refused", "handoff", h.id, "err", err)
	}
	return why
}

// refuse writes the final refusal over the revision that the caller has read.
func (r *Receiver) refuse(ctx context.Context, h *record, reason string) error {
	return r.write(ctx, h, state.PhaseRefused, func(c *state.Checkpoint) {
		bare(c)
		c.Mesh.Migration.Detail = reason
	})
}

package handoff

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// What a receiver may answer besides the errors of package state.
var (
	// ErrBusy: too many streams are open.
	ErrBusy = errors.New("the receiver is busy")
	// ErrUnknown: there is no handoff with this id.
	ErrUnknown = errors.New("no such handoff")
	// ErrAccepted: the run belongs to this platform and cannot be refused any more.
	ErrAccepted = errors.New("the handoff has been accepted")
	// ErrNotStaged: the document has not come, or not all of it.
	ErrNotStaged = errors.New("the handoff is not staged")
)

// A record is what is kept of one handoff: a checkpoint like any other, whose
// Migration says how far it has come. While the run is neither accepted nor
// refused it is all there is of it here.
type record struct {
	id  string // of the token
	c   *state.Checkpoint
	rev uint64
	own bool // an operator of this platform brought it: its issuer's share does not count
}

func (h *record) migration() *state.Migration { return h.c.Mesh.Migration }

func (h *record) status() Status {
	return Status{
		Handoff: h.id, Phase: h.migration().Phase, Run: h.c.Doc.RunID, Entity: h.c.Mesh.Entity, Reason: h.migration().Detail,
	}
}

// key is where the record is kept.
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
	run.ID = head.ID() // it is kept by the token, and of a run
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

// A compacter is a store that can forget what a record was before.
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

// giveUp refuses a handoff whose stream failed, and returns the error to answer
// with. The record of it, without the document, is what keeps its token used.
func (r *Receiver) giveUp(ctx context.Context, h *record, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := r.refuse(ctx, h, transfer.NewError(why).Message); err != nil && !errors.Is(err, state.ErrChanged) {
		r.cfg.Logger.Warn("handoff not refused", "handoff", h.id, "err", err)
	}
	return why
}

// refuse writes the refusal, for ever, over what the caller knows.
func (r *Receiver) refuse(ctx context.Context, h *record, reason string) error {
	return r.write(ctx, h, state.PhaseRefused, func(c *state.Checkpoint) {
		bare(c)
		c.Mesh.Migration.Detail = reason
	})
}

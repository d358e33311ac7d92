package handoff

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// stage stores the received document. The run waits for the source's decision.
func (r *Receiver) stage(ctx context.Context, h *record, c *state.Checkpoint) error {
	if c.Terminal() {
		return fmt.Errorf("%w: the run has ended, with status %s", state.ErrInvalid, c.Doc.Status)
	}
	if err := r.fits(ctx, h.c.Mesh.Entity, c.Doc.AgentVersion); err != nil {
		return err
	}
	if err := r.localize(ctx, h, c); err != nil {
		return err
	}
	return r.write(ctx, h, state.PhaseStaged, func(next *state.Checkpoint) { *next = *c })
}

// fits returns an error if an entity does not go on with runs of a version; see
// ReceiverConfig.Fits.
func (r *Receiver) fits(ctx context.Context, entity, version string) error {
	if r.cfg.Fits == nil {
		return nil
	}
	return r.cfg.Fits(ctx, entity, version)
}

// Commit accepts a run that its source has released. When it returns without an error, this
// platform owns the run for ever, and starts it. If the handoff was refused, the Status says so,
// without an error; that is final, too. Commit may be called again.
func (r *Receiver) Commit(ctx context.Context, id string) (Status, error) {
	for {
		h, err := r.load(ctx, id)
		if err != nil {
			return Status{}, err
		}
		switch h.migration().Phase {
		case state.PhaseRefused:
			return h.status(), r.drop(ctx, h, h.c.ID())
		case state.PhaseRunning:
			return h.status(), nil
		case state.PhaseAccepted:
			err = r.startAgain(ctx, h)
		case state.PhaseStaged:
			err = r.accept(ctx, h)
		default:
			return h.status(), fmt.Errorf("handoff %s: %w", id, ErrNotStaged)
		}
		if err == nil {
			return h.status(), nil
		}
		if !errors.Is(err, state.ErrChanged) {
			return Status{}, err
		}
	}
}

// accept makes a staged run this platform's, and starts it. If the agent's workers have
// changed since, so that they do not go on with the run's version, it refuses the run.
func (r *Receiver) accept(ctx context.Context, h *record) error {
	err := r.fits(ctx, h.c.Mesh.Entity, h.c.Doc.AgentVersion)
	if errors.Is(err, transfer.ErrUnknownAgent) {
		staged := h.c.ID()
		if err := r.refuse(ctx, h, transfer.NewError(err).Message); err != nil {
			return err
		}
		return r.drop(ctx, h, staged)
	}
	var run stored
	if err == nil {
		run, err = r.prepare(ctx, h)
	}
	if err == nil {
		err = r.write(ctx, h, state.PhaseAccepted, bare)
	}
	if err == nil {
		err = r.start(ctx, h, run)
	}
	return err
}

// prepare stores the run, parked, so that no worker runs it. It comes before the handoff
// is accepted, so that every accepted handoff has a run. Collect removes a run whose
// handoff was never accepted.
func (r *Receiver) prepare(ctx context.Context, h *record) (stored, error) {
	run := h.c.Clone()
	run.Mesh.Epoch++
	data, err := r.cfg.Codec(run.Mesh.Entity).Over(0).Encode(run)
	if err != nil {
		return stored{}, err
	}
	rev, err := r.put(ctx, r.cfg.States, run.ID(), 0, data)
	if !errors.Is(err, state.ErrChanged) {
		return stored{run, rev}, err
	}
	return r.own(ctx, h) // an earlier attempt has stored it
}

// stored is a stored run with its revision.
type stored struct {
	c   *state.Checkpoint
	rev uint64
}

// own reads the run that belongs to a handoff.
func (r *Receiver) own(ctx context.Context, h *record) (stored, error) {
	rec, err := r.cfg.States.Get(ctx, h.c.ID())
	if err != nil {
		return stored{}, err
	}
	c, err := r.cfg.Codec(h.c.Mesh.Entity).Read(rec)
	if err != nil {
		return stored{}, err
	}
	if m := c.Mesh.Migration; m == nil || m.ID != h.id {
		return stored{}, fmt.Errorf("%w: run %.50q of %s", transfer.ErrRunExists, h.c.Doc.RunID, h.c.Mesh.Entity)
	}
	return stored{c, rec.Revision}, nil
}

// startAgain starts an accepted run that may have been started before.
func (r *Receiver) startAgain(ctx context.Context, h *record) error {
	run, err := r.own(ctx, h)
	switch {
	case errors.Is(err, state.ErrNotFound), errors.Is(err, transfer.ErrRunExists):
		// It was started, and has ended or moved on since.
		return r.close(ctx, h)
	case err != nil:
		return err
	}
	return r.start(ctx, h, run)
}

// start gives an accepted run to the workers: it restores the status that the run had at the
// source. A run that has ended already is not started.
func (r *Receiver) start(ctx context.Context, h *record, run stored) error {
	if run.c.Mesh.Migration.Phase == state.PhaseStaged && !run.c.Terminal() {
		next := run.c.Clone()
		next.Doc.Status = next.After()
		next.Mesh.Migration.Phase, next.Mesh.Migration.Since = state.PhaseAccepted, r.cfg.Now(ctx).UTC()
		data, err := r.cfg.Codec(next.Mesh.Entity).Over(run.rev).Encode(next)
		if err != nil {
			return err
		}
		if _, err := r.put(ctx, r.cfg.States, next.ID(), run.rev, data); err != nil {
			return err
		}
		run.c = next
	}
	if run.c.Doc.Status == aaif.RunRunning || run.c.Doc.Status == aaif.RunAwaitingToolResult {
		if err := r.cfg.Kick(ctx, run.c); err != nil {
			return err
		}
	}
	return r.close(ctx, h)
}

// close records that the run was started.
func (r *Receiver) close(ctx context.Context, h *record) error {
	return r.write(ctx, h, state.PhaseRunning, nil)
}

// bare reduces a checkpoint to the members that the record of a handoff needs once the run has its
// own record.
func bare(c *state.Checkpoint) {
	*c = state.Checkpoint{
		Doc: aaif.State{AgentID: c.Doc.AgentID, RunID: c.Doc.RunID, Status: aaif.RunMigrating},
		Mesh: state.Mesh{
			Format: state.Format, Entity: c.Mesh.Entity, TaskID: c.Mesh.TaskID,
			Step: c.Mesh.Step, Migration: c.Mesh.Migration, Parent: c.Mesh.Parent,
		},
	}
}

// Refuse ends a handoff that has not been accepted: when it returns without error, the run will
// never run here. It fails with [ErrAccepted] if the handoff has been accepted. A handoff that has
// not arrived is refused too, so that it cannot arrive later. If its issuer may not transfer runs
// to this platform, the error wraps [transfer.ErrTokenKey].
func (r *Receiver) Refuse(ctx context.Context, id, issuer, reason string) (Status, error) {
	for {
		h, err := r.load(ctx, id)
		if errors.Is(err, ErrUnknown) {
			if err := r.mayIssue(ctx, issuer); err != nil {
				return Status{}, err
			}
			h = &record{id: id, c: &state.Checkpoint{Mesh: state.Mesh{
				Format: state.Format, Entity: holder, Step: state.Step{Kind: state.StepImport}, Migration: &state.Migration{ID: id, Issuer: issuer, Target: r.cfg.Platform},
			}}}
			h.c.Doc = aaif.State{AgentID: state.AgentID(holder), RunID: id, Status: aaif.RunMigrating}
			err = nil
		}
		if err != nil {
			return Status{}, err
		}
		switch h.migration().Phase {
		case state.PhaseRefused:
			return h.status(), nil
		case state.PhaseAccepted, state.PhaseRunning:
			return h.status(), fmt.Errorf("handoff %s: %w", id, ErrAccepted)
		}
		staged := h.c.ID()
		switch err := r.refuse(ctx, h, reason); {
		case errors.Is(err, state.ErrChanged):
			continue
		case err != nil:
			return Status{}, err
		}
		return h.status(), r.drop(ctx, h, staged)
	}
}

// Decline refuses a document from a file for ever, even if its token has expired, so that its
// source can resume the run. It does not examine the document itself.
func (r *Receiver) Decline(ctx context.Context, doc []byte, reason string) (Status, error) {
	grant, text, err := r.grantOf(doc)
	if err != nil {
		return Status{}, err
	}
	head, err := state.ReadHeader(text)
	if err != nil {
		return Status{}, err
	}
	entity := cmp.Or(head.Entity, grant.Issuer)
	h := &record{id: grant.ID, c: opening(entity, grant), own: true}
	switch err := r.refuse(ctx, h, reason); {
	case errors.Is(err, state.ErrChanged):
		return r.Refuse(ctx, grant.ID, grant.Issuer, reason)
	case err != nil:
		return Status{}, err
	}
	return h.status(), nil
}

// Entity returns the agent that will sign the receipt for a document: the receipt of
// [Receiver.Decline] with refuse, else that of [Receiver.Import]. It changes nothing, so a
// caller can check that it has the agent's key before it imports or declines.
func (r *Receiver) Entity(ctx context.Context, doc []byte, refuse bool) (string, error) {
	grant, text, err := r.grantOf(doc)
	if err != nil {
		return "", err
	}
	if !refuse {
		entity, err := r.cfg.Agent(ctx, grant.AgentID, grant.Issuer)
		if err != nil {
			return "", fmt.Errorf("agent_id %.50q: %w", grant.AgentID, err)
		}
		return entity, nil
	}
	head, err := state.ReadHeader(text)
	if err != nil {
		return "", err
	}
	return cmp.Or(head.Entity, grant.Issuer), nil
}

// grantOf returns the grant of a document from a file, whose token may have expired, and the
// document without the token.
func (r *Receiver) grantOf(doc []byte) (transfer.Grant, []byte, error) {
	token, text, err := transfer.TakeToken(doc)
	if err != nil {
		return transfer.Grant{}, nil, err
	}
	grant, err := transfer.VerifyOldToken(r.cfg.Keys, token, r.cfg.Platform)
	return grant, text, err
}

// drop deletes the parked run of a refused handoff. Nothing else changes this run, because its
// handoff was never accepted.
func (r *Receiver) drop(ctx context.Context, h *record, id state.ID) error {
	if id.Validate() != nil {
		return nil
	}
	run, err := r.own(ctx, &record{id: h.id, c: &state.Checkpoint{Doc: aaif.State{RunID: id.Run}, Mesh: state.Mesh{Entity: id.Entity}}})
	switch {
	case errors.Is(err, state.ErrNotFound), errors.Is(err, transfer.ErrRunExists):
		return nil
	case err != nil:
		return err
	case run.c.Mesh.Migration.Phase != state.PhaseStaged:
		return nil
	}
	return r.cfg.States.Delete(ctx, id)
}

// Get returns the status of a handoff.
func (r *Receiver) Get(ctx context.Context, id string) (Status, error) {
	h, err := r.load(ctx, id)
	if err != nil {
		return Status{}, err
	}
	return h.status(), nil
}

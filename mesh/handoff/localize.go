package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// localize converts the received run to a run of this mesh. docs/migration.md, "What a peer
// vouches for", lists the members that it keeps.
func (r *Receiver) localize(ctx context.Context, h *record, c *state.Checkpoint) error {
	entity, grant, now := h.c.Mesh.Entity, *h.migration(), r.cfg.Now(ctx)
	if c.Mesh.Entity == "" {
		if err := Adopt(c, entity, holder); err != nil {
			return err
		}
	}
	m := &c.Mesh
	if m.Entity != entity {
		return fmt.Errorf("%w: it is served as %s here, and the run is of %.80q", transfer.ErrUnknownAgent, entity, m.Entity)
	}
	if err := r.judgeTask(m, now); err != nil {
		return fmt.Errorf("%w: the run's task: %w", state.ErrInvalid, err)
	}
	if err := r.mayKick(c); err != nil {
		return err
	}
	if err := c.CheckNames(); err != nil {
		return err
	}
	if err := c.Inbound(now); err != nil {
		return err
	}
	grant.Status = c.InboundStatus()
	m.Parent = h.c.Mesh.Parent
	m.Step = state.Step{Kind: state.StepImport, Name: grant.Source, Detail: string(c.Doc.Status)}
	m.Migration = &grant
	c.Doc.Status, c.Doc.Provenance = aaif.RunMigrating, nil
	return nil
}

// mayKick returns an error if the run's task cannot be queued here.
func (r *Receiver) mayKick(c *state.Checkpoint) error {
	if r.cfg.MayKick == nil {
		return nil
	}
	switch err := r.cfg.MayKick(c); {
	case err == nil:
		return nil
	case errors.Is(err, state.ErrTooLarge):
		return fmt.Errorf("the run's task: %w", err)
	default:
		return fmt.Errorf("%w: the run's task: %w", state.ErrInvalid, err)
	}
}

// judgeTask checks that the task of a run is for this run, and records what its signature proves
// here. If nothing proves the sender, only the platform vouches for it ([state.Mesh.Vouched]).
func (r *Receiver) judgeTask(m *state.Mesh, now time.Time) error {
	task, err := envelope.ParseStored(m.Task)
	switch {
	case err != nil:
		return err
	case task.ID != m.TaskID:
		return fmt.Errorf("its id is %.80q, and the run says %.80q", task.ID, m.TaskID)
	case task.Type != envelope.TypeTask || task.To != m.Entity:
		return fmt.Errorf("it is a %s for %.80q, and the run is of %s", task.Type, task.To, m.Entity)
	}
	// A delegated task is answered for another agent: its replies go to that agent's caller, with
	// a chain of signatures that this platform cannot extend.
	var requires map[string]json.RawMessage
	if task.Requires != nil {
		if err := json.Unmarshal(task.Requires, &requires); err != nil {
			return err
		}
	}
	var handed map[string]json.RawMessage
	if json.Unmarshal(requires["handoff"], &handed) == nil && handed != nil {
		return errors.New("it was delegated to this agent, which answers for another one: such a run moves within its mesh only")
	}
	if m.KeyID, err = r.signedBy(task, now); err != nil {
		return err
	}
	if envelope.Priority(m.Priority).Rank() < 0 {
		m.Priority = string(envelope.PriorityNormal)
	}
	if m.KeyID == "" && m.Priority == string(envelope.PriorityUrgent) {
		m.Priority = string(envelope.PriorityHigh) // as any unknown sender's
	}
	return nil
}

// signedBy returns the key that proves a task's sender here; "" if the task is unsigned, or its
// key is not known here or not valid now, a revoked one included: the platform could as well have left
// the signature out. A wrong signature is an error.
func (r *Receiver) signedBy(task *envelope.Envelope, now time.Time) (string, error) {
	_, kid, ok := sign.Describe(task)
	if !ok {
		return "", nil
	}
	key, ok := r.cfg.Keys.Lookup(kid)
	if !ok || !key.Valid(now) {
		return "", nil
	}
	var ring sign.Ring
	if err := ring.Put(sign.Local, key); err != nil {
		return "", err
	}
	identity, err := ring.Verify(task, now)
	return identity.KID, err
}

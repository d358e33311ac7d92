package mesh

import (
	"context"
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/contexts"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
)

// Input returns the payload for the handler: that of [Task.ServeAs], if it was called, else
// the envelope's. For a hop it removes references to envelopes
// with the same corr: the mesh added them to document the origin of the task. The content
// that the hop needs is in the rest of the payload and in [Task.HandedState].
func (t *Task) Input() json.RawMessage {
	e := t.Envelope
	if t.served.input != nil {
		return t.served.input
	}
	if e.ReplyTo == "" {
		return e.Payload
	}
	return envelope.KeepReferences(e.Payload, func(r envelope.Reference) bool { return r.Corr != e.Corr })
}

// Fetched is an earlier envelope that a task refers to, and its refutations. Its payload
// comes from another entity and was not validated against a schema.
type Fetched = contexts.Fetched

// Fetch gets an envelope that the task refers to (payload.references; AEE, "The
// payload.references Array"): from this agent's own journal, else with aee.context.fetch
// from the entity of the reference's locator or, if the locator names no other agent,
// from the sender of the task. It takes at most three seconds.
//
// Fetch checks the envelope's id, and its corr and hash if the reference has them. It
// verifies the signature of a fetched envelope at the envelope's own time. The sender of
// the task must have the right to fetch the envelope itself: it is the envelope's from or
// to (proven by the task's signature, if the envelope is signed), or the reference names
// the envelope's hash.
//
// It fails with an [*envelope.Error]: E_NOT_FOUND, E_HASH_MISMATCH, E_DENIED,
// E_UNAVAILABLE, E_TIMEOUT or the code of a wrong signature.
func (t *Task) Fetch(ctx context.Context, ref envelope.Reference) (*Fetched, error) {
	if t.host == nil {
		return nil, envelope.Errorf(envelope.CodeNotFound, "there is no envelope %s to fetch", clip.Text(ref.ID, 128))
	}
	return t.host.contexts.Fetch(ctx, t.inContext(), ref)
}

// inContext returns what package contexts needs of the task.
func (t *Task) inContext() contexts.Task {
	return contexts.Task{Envelope: t.Envelope, Verified: t.KeyID != ""}
}

// newContexts returns the earlier envelopes (internal/contexts) of the agent.
func (h *host) newContexts() *contexts.Contexts {
	n := h.node
	cfg := contexts.Config{
		Entity: h.Entity, Journal: n.journal, Refuted: &n.refuted, Verifier: n.cfg.Verifier, Limits: n.limits, Log: h.log,
		Ask: h.askForContext, Silent: client.PublishesTo,
	}
	if n.cfg.Refutations != nil {
		cfg.Shared = n.cfg.Refutations
	}
	return contexts.New(cfg)
}

// askForContext sends aee.context.fetch.
func (h *host) askForContext(ctx context.Context, ask *envelope.Envelope) (*envelope.Envelope, error) {
	if err := h.sign(ask); err != nil {
		return nil, err
	}
	reply, err := h.node.Send(ctx, ask, client.SendOptions{NoCancel: true})
	if err != nil {
		return nil, fault.AfterBegin(err) // codes such as E_BUSY are about the fetch: this task has begun
	}
	return reply, nil
}

// reference returns a reference to this task for the receiver of a delegation. It has no
// hash, because this worker may have changed the task's priority, and with it the hash.
func (t *Task) reference() envelope.Reference {
	return envelope.Reference{ID: t.Envelope.ID, Corr: t.Envelope.Corr, Type: envelope.ReferenceType, Locator: t.host.Entity}
}

// checkReferences refuses a task with invalid references (AEE, "The payload.references
// Array").
func checkReferences(t *Task) error {
	if _, err := t.Envelope.References(); err != nil {
		return envelope.Errorf(envelope.CodeInputSchema, "%v", err)
	}
	return nil
}

package mesh

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/journal"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
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
type Fetched struct {
	Envelope    *envelope.Envelope
	Refutations []intents.Refutation
}

// fetching gets an envelope that a task refers to.
type fetching struct{ *Task }

// fetchTimeout is how long a fetch takes at most, also if ctx allows more.
const fetchTimeout = 3 * time.Second

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
	h := t.host
	if h == nil || len(ref.ID) > wire.MaxName || ref.ID == t.Envelope.ID {
		return nil, envelope.Errorf(envelope.CodeNotFound, "there is no envelope %s to fetch", clip.Text(ref.ID, 128))
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	own, err := h.node.journal.Find(ctx, h.Entity, ref.ID)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the journal cannot be read for now: %w", err)
	}
	if own != nil {
		if err := (fetching{t}).checkReference(own, ref); err != nil {
			return nil, err
		}
		return &Fetched{own, h.reserved.refutationsOf(ctx, ref.ID)}, nil
	}
	whom, err := fetching{t}.fetchFrom(ref)
	if err != nil {
		return nil, err
	}
	ask := envelope.New(envelope.TypeTask, h.Entity, whom, intents.ContextFetch, wire.MustJSON(intents.FetchTask{ID: ref.ID, Corr: ref.Corr, Locator: ref.Locator, Hash: ref.Hash}))
	ask.Corr, ask.Trace, ask.Priority = t.Envelope.Corr, t.Envelope.Trace, t.Envelope.Priority
	ask.Requires = envelope.Requirements{Timeout: fetchTimeout}.AppendJSON(nil)
	if err := h.sign(ask); err != nil {
		return nil, err
	}
	reply, err := h.node.Send(ctx, ask, client.SendOptions{NoCancel: true})
	if err != nil {
		return nil, fault.AfterBegin(err) // codes such as E_BUSY are about the fetch: this task has begun
	}
	var found intents.FetchResult
	if err := json.Unmarshal(reply.Payload, &found); err != nil || !found.Found || found.Envelope == nil {
		return nil, envelope.Errorf(envelope.CodeNotFound, "%s knows no envelope %s", whom, clip.Text(ref.ID, 128))
	}
	e, err := envelope.ParseLimits(found.Envelope, h.node.limits)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeNotFound, "the answer of %s for %s is not a valid envelope: %w", whom, clip.Text(ref.ID, 128), err)
	}
	at, ok := e.Time()
	if !ok {
		at = time.Now()
	}
	if _, err := h.node.cfg.Verifier.Verify(e, at); err != nil {
		return nil, fault.ForPeer(err)
	}
	if err := (fetching{t}).checkReference(e, ref); err != nil {
		return nil, err
	}
	if n := len(found.Refutations); n > journal.MaxRefutations {
		found.Refutations = found.Refutations[n-journal.MaxRefutations:]
	}
	return &Fetched{e, found.Refutations}, nil
}

// fetchFrom returns the entity from which to fetch an envelope that this agent does not
// have.
func (f fetching) fetchFrom(ref envelope.Reference) (string, error) {
	for _, entity := range []string{ref.Locator, f.Envelope.From} {
		// A locator need not be an entity, and people and channels do not answer a fetch.
		if subject.ValidateEntity(entity) == nil && !client.PublishesTo(entity) && entity != f.host.Entity {
			return entity, nil
		}
	}
	return "", envelope.Errorf(envelope.CodeNotFound, "no entity is known that has envelope %s", clip.Text(ref.ID, 128))
}

// checkReference compares an envelope with the reference, and checks that the task's sender may
// read it, by the same rule as aee.context.fetch.
func (f fetching) checkReference(e *envelope.Envelope, ref envelope.Reference) error {
	if e.ID != ref.ID || ref.Corr != "" && e.Corr != ref.Corr {
		return envelope.Errorf(envelope.CodeNotFound, "the envelope is not the one that the reference to %s names", clip.Text(ref.ID, 128))
	}
	if ref.Hash != "" {
		if hash, err := e.Hash(); err != nil || hash != ref.Hash {
			return envelope.Errorf(envelope.CodeHashMismatch, "envelope %s has another hash", clip.Text(ref.ID, 128)).WithCause(err)
		}
	}
	if ref.Hash == "" && !f.isPartyTo(e) {
		return envelope.Errorf(envelope.CodeDenied, "the sender of the task is no party of envelope %s, and does not know its hash", clip.Text(ref.ID, 128))
	}
	return nil
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

// withoutReferences returns a task's payload without the member references, for schemas
// that do not allow it; nil if the payload has none.
func withoutReferences(payload json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil || members["references"] == nil {
		return nil
	}
	delete(members, "references")
	return wire.MustJSON(members)
}

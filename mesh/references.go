package mesh

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
)

// Input is what the task is about: its payload, of a hop without references to envelopes
// of its own workflow (the same corr). These are the mesh's account of what it made the
// task of; what the hop is to know of them is in the payload, and in [Task.HandedState].
func (t *Task) Input() json.RawMessage {
	e := t.Envelope
	if e.ReplyTo == "" {
		return e.Payload
	}
	return envelope.KeepReferences(e.Payload, func(r envelope.Reference) bool { return r.Corr != e.Corr })
}

// Fetched is an earlier envelope that a task refers to, and its refutations. Its payload
// is the word of others, and was held against no schema.
type Fetched struct {
	Envelope    *envelope.Envelope
	Refutations []intents.Refutation
}

// fetchTimeout is how long a fetch takes at most, whatever its caller allows.
const fetchTimeout = 3 * time.Second

// Fetch gets an envelope that the task refers to (payload.references; AEE, "The
// payload.references Array"): from what this agent sent and received itself, else
// with aee.context.fetch from the entity that the locator names, or, where there is
// none, from the sender of the task. It takes at most three seconds.
//
// The envelope has the id, and where the reference names them the corr and the hash;
// its signature is verified as one of its time. A task's sender learns nothing by a
// reference that it could not fetch itself: it must be a party of the envelope, by a
// signature where that has one, or name its hash.
//
// It fails with an [*envelope.Error]: E_NOT_FOUND, E_HASH_MISMATCH, E_DENIED,
// E_UNAVAILABLE, E_TIMEOUT or that of the signature.
func (t *Task) Fetch(ctx context.Context, ref envelope.Reference) (*Fetched, error) {
	h := t.host
	if h == nil || len(ref.ID) > maxName || ref.ID == t.Envelope.ID {
		return nil, envelope.Errorf(envelope.CodeNotFound, "there is no envelope %s to fetch", clip.Text(ref.ID, 128))
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	own, err := h.node.recall(ctx, h.Entity, ref.ID)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the journal cannot be read for now: %w", err)
	}
	if own != nil {
		if err := t.mayKnow(own, ref); err != nil {
			return nil, err
		}
		return &Fetched{own, h.refutationsOf(ctx, ref.ID)}, nil
	}
	whom, err := t.keeper(ref)
	if err != nil {
		return nil, err
	}
	ask := envelope.New(envelope.TypeTask, h.Entity, whom, intents.ContextFetch, mustJSON(intents.FetchTask{ID: ref.ID, Corr: ref.Corr, Locator: ref.Locator, Hash: ref.Hash}))
	ask.Corr, ask.Trace, ask.Priority = t.Envelope.Corr, t.Envelope.Trace, t.Envelope.Priority
	ask.Requires = envelope.Requirements{Timeout: fetchTimeout}.AppendJSON(nil)
	if err := h.sign(ask); err != nil {
		return nil, err
	}
	reply, err := h.node.Send(ctx, ask, SendOptions{NoCancel: true})
	if err != nil {
		return nil, begun(err) // a refusal of theirs is none of this task
	}
	var found intents.FetchResult
	if err := json.Unmarshal(reply.Payload, &found); err != nil || !found.Found || found.Envelope == nil {
		return nil, envelope.Errorf(envelope.CodeNotFound, "%s knows no envelope %s", whom, clip.Text(ref.ID, 128))
	}
	e, err := envelope.ParseLimits(found.Envelope, h.node.limits)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeNotFound, "what %s gave for %s is no envelope: %w", whom, clip.Text(ref.ID, 128), err)
	}
	at, ok := e.Time()
	if !ok {
		at = time.Now()
	}
	if _, err := h.node.cfg.Verifier.Verify(e, at); err != nil {
		return nil, border(err)
	}
	if err := t.mayKnow(e, ref); err != nil {
		return nil, err
	}
	if n := len(found.Refutations); n > maxRefutations {
		found.Refutations = found.Refutations[n-maxRefutations:]
	}
	return &Fetched{e, found.Refutations}, nil
}

// keeper is the entity that is asked for an envelope which this agent does not have.
func (t *Task) keeper(ref envelope.Reference) (string, error) {
	for _, entity := range []string{ref.Locator, t.Envelope.From} {
		// A locator may be of another kind, and people and channels answer no fetch.
		if subject.ValidateEntity(entity) == nil && !PublishesTo(entity) && entity != t.host.Entity {
			return entity, nil
		}
	}
	return "", envelope.Errorf(envelope.CodeNotFound, "no entity is known that has envelope %s", clip.Text(ref.ID, 128))
}

// mayKnow holds an envelope against the reference, and decides whether the sender of
// the task may have it told: as fetch does for those who ask themselves.
func (t *Task) mayKnow(e *envelope.Envelope, ref envelope.Reference) error {
	if e.ID != ref.ID || ref.Corr != "" && e.Corr != ref.Corr {
		return envelope.Errorf(envelope.CodeNotFound, "the envelope is not the one that the reference to %s names", clip.Text(ref.ID, 128))
	}
	if ref.Hash != "" {
		if hash, err := e.Hash(); err != nil || hash != ref.Hash {
			return envelope.Errorf(envelope.CodeHashMismatch, "envelope %s has another hash", clip.Text(ref.ID, 128)).WithCause(err)
		}
	}
	if ref.Hash == "" && !t.isPartyTo(e) {
		return envelope.Errorf(envelope.CodeDenied, "the sender of the task is no party of envelope %s, and does not know its hash", clip.Text(ref.ID, 128))
	}
	return nil
}

// reference names the task for those to whom this agent hands it on. There is no hash:
// what is here has the priority that it is served with, and may have come with another.
func (t *Task) reference() envelope.Reference {
	return envelope.Reference{ID: t.Envelope.ID, Corr: t.Envelope.Corr, Type: envelope.ReferenceType, Locator: t.host.Entity}
}

// checkReferences refuses a task whose references are none (AEE, "The
// payload.references Array").
func checkReferences(e *envelope.Envelope) error {
	if _, err := e.References(); err != nil {
		return envelope.Errorf(envelope.CodeInputSchema, "%v", err)
	}
	return nil
}

// withoutReferences is a task's payload without the mesh's own member, for schemas
// that leave no room for it; nil where it has none.
func withoutReferences(payload json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil || members["references"] == nil {
		return nil
	}
	delete(members, "references")
	return mustJSON(members)
}

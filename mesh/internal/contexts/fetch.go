package contexts

import (
	"context"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/journal"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Fetched is an earlier envelope that a task refers to, and its refutations. Its payload
// comes from another entity and was not validated against a schema.
type Fetched struct {
	Envelope    *envelope.Envelope
	Refutations []intents.Refutation
}

// fetchTimeout is how long a fetch takes at most, also if ctx allows more.
const fetchTimeout = 3 * time.Second

// Fetch gets an envelope that a task refers to: from the agent's own journal, else from
// another entity. It takes at most three seconds.
func (c *Contexts) Fetch(ctx context.Context, t Task, ref envelope.Reference) (*Fetched, error) {
	if len(ref.ID) > wire.MaxName || ref.ID == t.ID {
		return nil, envelope.Errorf(envelope.CodeNotFound, "there is no envelope %s to fetch", clip.Text(ref.ID, 128))
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	own, err := c.find(ctx, ref.ID)
	if err != nil {
		return nil, err
	}
	if own != nil {
		if err := check(t, own, ref); err != nil {
			return nil, err
		}
		return &Fetched{own, c.refutations(ctx, ref.ID)}, nil
	}
	whom, err := c.fetchFrom(t, ref)
	if err != nil {
		return nil, err
	}
	ask := envelope.New(envelope.TypeTask, c.cfg.Entity, whom, intents.ContextFetch, wire.MustJSON(intents.FetchTask{ID: ref.ID, Corr: ref.Corr, Locator: ref.Locator, Hash: ref.Hash}))
	ask.Corr, ask.Trace, ask.Priority = t.Corr, t.Trace, t.Priority
	ask.Requires = envelope.Requirements{Timeout: fetchTimeout}.AppendJSON(nil)
	reply, err := c.cfg.Ask(ctx, ask)
	if err != nil {
		return nil, err
	}
	var found intents.FetchResult
	if err := wire.ReadJSON(reply.Payload, &found); err != nil || !found.Found || found.Envelope == nil {
		return nil, envelope.Errorf(envelope.CodeNotFound, "%s knows no envelope %s", whom, clip.Text(ref.ID, 128))
	}
	e, err := envelope.ParseLimits(found.Envelope, c.cfg.Limits)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeNotFound, "the answer of %s for %s is not a valid envelope: %w", whom, clip.Text(ref.ID, 128), err)
	}
	at, ok := e.Time()
	if !ok {
		at = time.Now()
	}
	if _, err := c.cfg.Verifier.Verify(e, at); err != nil {
		return nil, fault.ForPeer(err)
	}
	if err := check(t, e, ref); err != nil {
		return nil, err
	}
	if n := len(found.Refutations); n > journal.MaxRefutations {
		found.Refutations = found.Refutations[n-journal.MaxRefutations:]
	}
	return &Fetched{e, found.Refutations}, nil
}

// fetchFrom returns the entity from which to fetch an envelope that this agent does not
// have.
func (c *Contexts) fetchFrom(t Task, ref envelope.Reference) (string, error) {
	for _, entity := range []string{ref.Locator, t.From} {
		// A locator need not be an entity.
		if subject.ValidateEntity(entity) == nil && !c.cfg.Silent(entity) && entity != c.cfg.Entity {
			return entity, nil
		}
	}
	return "", envelope.Errorf(envelope.CodeNotFound, "no entity is known that has envelope %s", clip.Text(ref.ID, 128))
}

// check compares an envelope with the reference, and checks that the task's sender may
// read it, by the same rule as aee.context.fetch.
func check(t Task, e *envelope.Envelope, ref envelope.Reference) error {
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

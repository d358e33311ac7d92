package contexts

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/journal"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Config configures [Contexts].
type Config struct {
	Entity   string // the agent
	Journal  *journal.Journal
	Refuted  *journal.Refutations // in the memory of this process
	Shared   Refutations          // of all workers; nil: none
	Verifier sign.Verifier
	Limits   envelope.Limits
	Log      *slog.Logger

	// Ask signs and sends a task, and returns its result.
	Ask func(ctx context.Context, task *envelope.Envelope) (*envelope.Envelope, error)
	// Silent reports whether an entity never answers a fetch, like people and channels.
	Silent func(entity string) bool
}

// Refutations stores which contexts were refuted to an entity; see Refutations of package mesh.
type Refutations interface {
	Add(ctx context.Context, entity, id string, record []byte) error
	List(ctx context.Context, entity, id string) ([][]byte, error)
}

// Contexts are the earlier envelopes of one agent. Its methods may be called from many
// goroutines.
type Contexts struct{ cfg Config }

// New returns the contexts of an agent.
func New(cfg Config) *Contexts { return &Contexts{cfg} }

// A Task is one that refers to an earlier envelope.
type Task struct {
	*envelope.Envelope
	Verified bool // its signature was verified
}

// isPartyTo reports whether the task's sender sent or received an envelope. For a signed
// envelope the task's own signature must be verified, because an unsigned from proves
// nothing.
func (t Task) isPartyTo(e *envelope.Envelope) bool {
	return (t.From == e.From || t.From == e.To) && (e.Sig == nil || t.Verified)
}

// AnswerFetch answers aee.context.fetch: it looks for an envelope that this agent sent or
// received.
func (c *Contexts) AnswerFetch(ctx context.Context, task Task) (intents.FetchResult, error) {
	var none intents.FetchResult
	var want intents.FetchTask
	if err := wire.ReadJSON(task.Payload, &want); err != nil {
		return none, err
	}
	found, err := c.find(ctx, want.ID)
	if err != nil {
		return none, err
	}
	if found == nil || found.ID == task.ID || want.Corr != "" && want.Corr != found.Corr {
		return none, nil
	}
	// A number beyond I-JSON has no canonical form, and so its envelope no hash.
	hash, err := found.Hash()
	named := err == nil && want.Hash == hash
	if !named && !task.isPartyTo(found) {
		return none, nil
	}
	if want.Hash != "" && !named {
		return none, envelope.Errorf(envelope.CodeHashMismatch, "envelope %s has another hash", clip.Text(want.ID, 128)).WithCause(err)
	}
	raw, err := found.AppendJSON(nil)
	if err != nil {
		return none, err
	}
	return intents.FetchResult{Found: true, Envelope: raw, Hash: hash, Refutations: c.refutations(ctx, want.ID)}, nil
}

// find looks for an envelope in the journal; nil: it does not have it.
func (c *Contexts) find(ctx context.Context, id string) (*envelope.Envelope, error) {
	found, err := c.cfg.Journal.Find(ctx, c.cfg.Entity, id)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the journal cannot be read for now: %w", err)
	}
	return found, nil
}

// AnswerRefute answers aee.context.refute: it records that the task's sender rejects a
// context. Later fetches of the context return that refutation, which replaces an earlier one of the
// same sender; one without a verified signature does not replace one with it. What this agent does not
// find cannot be fetched either: its refutation is not acknowledged, and not stored.
func (c *Contexts) AnswerRefute(ctx context.Context, task Task) (intents.RefuteResult, error) {
	var none intents.RefuteResult
	var what intents.RefuteTask
	if err := wire.ReadJSON(task.Payload, &what); err != nil {
		return none, err
	}
	if len(what.ID) > wire.MaxName {
		return none, envelope.Errorf(envelope.CodeNotFound, "no envelope here has an id of more than %d bytes", wire.MaxName)
	}
	if found, err := c.find(ctx, what.ID); err != nil || found == nil || found.ID == task.ID {
		return none, err
	}
	record := wire.MustJSON(struct { // see jetstream.AddRefutation
		intents.Refutation
		Verified bool `json:"verified,omitempty"`
	}{intents.Refutation{By: clip.Text(task.From, 128), Reason: clip.Text(what.Reason, journal.MaxReason), TS: envelope.Now()}, task.Verified})
	c.cfg.Refuted.Add(what.ID, record)
	if c.cfg.Shared != nil {
		if err := c.cfg.Shared.Add(ctx, c.cfg.Entity, what.ID, record); err != nil {
			return none, envelope.Errorf(envelope.CodeUnavailable, "the refutation cannot be stored for now: %w", err)
		}
	}
	return intents.RefuteResult{Acknowledged: true}, nil
}

func (c *Contexts) refutations(ctx context.Context, id string) []intents.Refutation {
	records := c.cfg.Refuted.List(id)
	if c.cfg.Shared != nil {
		if shared, err := c.cfg.Shared.List(ctx, c.cfg.Entity, id); err == nil {
			records = shared
		} else if !errors.Is(err, context.Canceled) && !errors.Is(err, jetstream.ErrNotFound) {
			c.cfg.Log.Warn("stored refutations not read", "id", id, "err", err)
		}
	}
	var out []intents.Refutation
	for _, raw := range records {
		var r intents.Refutation
		if json.Unmarshal(raw, &r) == nil {
			out = append(out, r)
		}
	}
	return out
}

package contexts

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/journal"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// known returns the contexts of agent.x, whose journal has an envelope from ada to x.
func known(t *testing.T, ask func(*envelope.Envelope) *envelope.Envelope) (*Contexts, *envelope.Envelope) {
	log := slog.New(slog.DiscardHandler)
	c := New(Config{
		Entity: "agent.x", Journal: journal.New(nil, log), Refuted: &journal.Refutations{}, Log: log,
		Ask:    func(_ context.Context, task *envelope.Envelope) (*envelope.Envelope, error) { return ask(task), nil },
		Silent: func(entity string) bool { return entity == "human.ada" },
	})
	e := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{"n":1}`))
	raw, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.cfg.Journal.RememberReceived("agent.x", e, raw, false)
	return c, e
}

func code(err error) envelope.Code {
	var problem *envelope.Error
	if !errors.As(err, &problem) {
		return ""
	}
	return problem.Code
}

// An id opens nothing: who reads an envelope is party to it, or names its hash. The rule is
// the same for a fetch that is answered and for a reference of a task.
func TestAnEnvelopeIsReadByItsPartiesAndByItsHash(t *testing.T) {
	t.Parallel()
	c, e := known(t, nil)
	hash, err := e.Hash()
	if err != nil {
		t.Fatal(err)
	}
	signed := *e
	signed.Sig = json.RawMessage(`{}`)
	for _, tt := range []struct {
		name, from, hash string
		found            bool
		code             envelope.Code // of the reference
	}{
		{"a party", "human.ada", "", true, ""},
		{"a stranger", "human.eve", "", false, envelope.CodeDenied},
		{"a stranger that knows the hash", "human.eve", hash, true, ""},
		{"a stranger that guesses the hash", "human.eve", "sha256:0", false, envelope.CodeHashMismatch},
	} {
		task := envelope.New(envelope.TypeTask, tt.from, "agent.x", intents.ContextFetch, wire.MustJSON(intents.FetchTask{ID: e.ID, Hash: tt.hash}))
		answer, err := c.AnswerFetch(t.Context(), Task{Envelope: task})
		if err != nil || answer.Found != tt.found {
			t.Errorf("%s: found %v, %v", tt.name, answer.Found, err)
		}
		fetched, err := c.Fetch(t.Context(), Task{Envelope: task}, envelope.Reference{ID: e.ID, Hash: tt.hash})
		if code(err) != tt.code || (fetched != nil) != (tt.code == "") {
			t.Errorf("%s: fetched %v, %v", tt.name, fetched, err)
		}
	}
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", nil)
	if (Task{Envelope: task}).isPartyTo(&signed) || !(Task{Envelope: task, Verified: true}).isPartyTo(&signed) {
		t.Error("an unsigned from proves that it is party to a signed envelope")
	}
}

// What this agent does not have it asks of the locator's entity, and believes only what fits
// the reference.
func TestAFetchedEnvelopeFitsItsReference(t *testing.T) {
	t.Parallel()
	other := envelope.New(envelope.TypeTask, "agent.y", "agent.z", "x.y.z", json.RawMessage(`{}`))
	raw, err := other.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := other.Hash()
	if err != nil {
		t.Fatal(err)
	}
	var asked *envelope.Envelope
	c, _ := known(t, func(task *envelope.Envelope) *envelope.Envelope {
		asked = task
		return task.Reply(envelope.TypeResult, wire.MustJSON(intents.FetchResult{Found: true, Envelope: raw}))
	})
	task := Task{Envelope: envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", nil)}
	for _, tt := range []struct {
		ref  envelope.Reference
		code envelope.Code
	}{
		{envelope.Reference{ID: other.ID, Locator: "agent.y", Hash: hash}, ""},
		{envelope.Reference{ID: other.ID, Locator: "agent.y"}, envelope.CodeDenied},
		{envelope.Reference{ID: "another", Locator: "agent.y", Hash: hash}, envelope.CodeNotFound},
		{envelope.Reference{ID: other.ID, Locator: "agent.y", Hash: hash, Corr: "another"}, envelope.CodeNotFound},
		{envelope.Reference{ID: other.ID, Locator: "agent.x", Hash: hash}, envelope.CodeNotFound}, // and ada does not answer
		{envelope.Reference{ID: task.ID, Locator: "agent.y"}, envelope.CodeNotFound},
	} {
		asked = nil
		_, err := c.Fetch(t.Context(), task, tt.ref)
		if code(err) != tt.code {
			t.Errorf("%+v: %v, want %s", tt.ref, err, tt.code)
		}
		if tt.code == "" && (asked == nil || asked.To != "agent.y" || asked.From != "agent.x" || asked.Corr != task.Corr) {
			t.Errorf("asked %+v", asked)
		}
	}
}

func TestARefutedContextSaysSo(t *testing.T) {
	t.Parallel()
	c, e := known(t, nil)
	refute := envelope.New(envelope.TypeTask, "agent.y", "agent.x", intents.ContextRefute, wire.MustJSON(intents.RefuteTask{ID: e.ID, Reason: "wrong"}))
	if answer, err := c.AnswerRefute(t.Context(), Task{Envelope: refute}); err != nil || !answer.Acknowledged {
		t.Fatalf("%+v, %v", answer, err)
	}
	fetched, err := c.Fetch(t.Context(), Task{Envelope: envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", nil)}, envelope.Reference{ID: e.ID})
	if err != nil || len(fetched.Refutations) != 1 || fetched.Refutations[0].By != "agent.y" || fetched.Refutations[0].Reason != "wrong" {
		t.Errorf("%+v, %v", fetched, err)
	}
}

// The schema of aee.context.fetch is about id and hash: so is the answer.
func TestAFetchIsReadAsItsSchemaSays(t *testing.T) {
	t.Parallel()
	c, e := known(t, nil)
	payload := json.RawMessage(`{"id":"another-id","ID":"` + e.ID + `"}`)
	answer, err := c.AnswerFetch(t.Context(), Task{Envelope: envelope.New(envelope.TypeTask, "human.ada", "agent.x", intents.ContextFetch, payload)})
	if err != nil || answer.Found {
		t.Errorf("found %v, %v", answer.Found, err)
	}
}

package contexts

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
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
	task.Trace, task.Priority = json.RawMessage(`{"traceparent":"t"}`), envelope.PriorityHigh
	for _, tt := range []struct {
		ref   envelope.Reference
		asked bool
		code  envelope.Code
	}{
		{envelope.Reference{ID: other.ID, Locator: "agent.y", Hash: hash}, true, ""},
		{envelope.Reference{ID: other.ID, Locator: "agent.y"}, true, envelope.CodeDenied},
		{envelope.Reference{ID: "another", Locator: "agent.y", Hash: hash}, true, envelope.CodeNotFound},
		{envelope.Reference{ID: other.ID, Locator: "agent.y", Hash: hash, Corr: "another"}, true, envelope.CodeNotFound},
		{envelope.Reference{ID: other.ID, Locator: "agent.x", Hash: hash}, false, envelope.CodeNotFound}, // and ada does not answer
		{envelope.Reference{ID: task.ID, Locator: "agent.y"}, false, envelope.CodeNotFound},
		{envelope.Reference{ID: strings.Repeat("i", wire.MaxName), Locator: "agent.y"}, true, envelope.CodeNotFound},
		{envelope.Reference{ID: strings.Repeat("i", wire.MaxName+1), Locator: "agent.y"}, false, envelope.CodeNotFound}, // no envelope has such an id
	} {
		asked = nil
		_, err := c.Fetch(t.Context(), task, tt.ref)
		if code(err) != tt.code {
			t.Errorf("%+v: %v, want %s", tt.ref, err, tt.code)
		}
		if (asked != nil) != tt.asked {
			t.Errorf("%+v: asked %+v", tt.ref, asked)
		}
		if tt.code == "" && (asked == nil || asked.To != "agent.y" || asked.From != "agent.x" || asked.Corr != task.Corr ||
			asked.Priority != task.Priority || string(asked.Trace) != string(task.Trace) || string(asked.Requires) != `{"timeout_ms":3000}`) {
			t.Errorf("asked %+v", asked)
		}
	}
}

// An entity that says that it has not found an envelope is believed, whatever comes along.
func TestWhatIsNotFoundIsNotRead(t *testing.T) {
	t.Parallel()
	other := envelope.New(envelope.TypeTask, "agent.y", "human.ada", "x.y.z", json.RawMessage(`{}`))
	raw, err := other.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := known(t, func(task *envelope.Envelope) *envelope.Envelope {
		return task.Reply(envelope.TypeResult, wire.MustJSON(intents.FetchResult{Envelope: raw}))
	})
	task := Task{Envelope: envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", nil)}
	if fetched, err := c.Fetch(t.Context(), task, envelope.Reference{ID: other.ID, Locator: "agent.y"}); code(err) != envelope.CodeNotFound {
		t.Errorf("%+v, %v", fetched, err)
	}
}

// The locator is asked before the task's sender, and an answer is read within the limits of
// this agent. Of its refutations the newest count.
func TestAnAnswerIsBounded(t *testing.T) {
	t.Parallel()
	other := envelope.New(envelope.TypeTask, "agent.y", "agent.w", "x.y.z", json.RawMessage(`{"text":"`+strings.Repeat("x", 1000)+`"}`))
	raw, err := other.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	var refutations []intents.Refutation
	for i := range journal.MaxRefutations + 1 {
		refutations = append(refutations, intents.Refutation{By: "agent.y", Reason: strconv.Itoa(i)})
	}
	c, _ := known(t, func(task *envelope.Envelope) *envelope.Envelope {
		if task.To != "agent.y" {
			t.Errorf("asked %s", task.To)
		}
		return task.Reply(envelope.TypeResult, wire.MustJSON(intents.FetchResult{Found: true, Envelope: raw, Refutations: refutations}))
	})
	task, ref := Task{Envelope: envelope.New(envelope.TypeTask, "agent.w", "agent.x", "x.y.z", nil)}, envelope.Reference{ID: other.ID, Locator: "agent.y"}
	fetched, err := c.Fetch(t.Context(), task, ref)
	if err != nil || !slices.Equal(fetched.Refutations, refutations[1:]) {
		t.Errorf("%+v, %v", fetched, err)
	}
	c.cfg.Limits.MaxBytes = 1000
	if _, err := c.Fetch(t.Context(), task, ref); code(err) != envelope.CodeNotFound {
		t.Errorf("over the limit: %v", err)
	}
}

// An earlier envelope has no other time than its own: its key must have been valid then.
func TestAFetchedEnvelopeIsVerifiedAtItsOwnTime(t *testing.T) {
	t.Parallel()
	signer, key, err := sign.NewKey("old", sign.Ed25519, "agent.y")
	if err != nil {
		t.Fatal(err)
	}
	key.Expires = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ring := &sign.Ring{}
	if err := ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	for ts, want := range map[string]envelope.Code{"2025-12-31T23:59:59Z": "", "2026-01-01T00:00:01Z": envelope.CodeKeyInvalid} {
		e := envelope.New(envelope.TypeTask, "agent.y", "agent.w", "x.y.z", json.RawMessage(`{}`))
		e.TS = ts
		if err := signer.Sign(e); err != nil {
			t.Fatal(err)
		}
		raw, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		c, _ := known(t, func(task *envelope.Envelope) *envelope.Envelope {
			return task.Reply(envelope.TypeResult, wire.MustJSON(intents.FetchResult{Found: true, Envelope: raw}))
		})
		c.cfg.Verifier = sign.Verifier{Ring: ring, Mode: sign.Required}
		task := Task{Envelope: envelope.New(envelope.TypeTask, "agent.w", "agent.x", "x.y.z", nil), Verified: true}
		if _, err := c.Fetch(t.Context(), task, envelope.Reference{ID: e.ID, Locator: "agent.y"}); code(err) != want {
			t.Errorf("of %s: %v, want %q", ts, err, want)
		}
	}
}

// No hash is that of an envelope that has none, so it is for its parties only, and they name
// none.
func TestNoHashOpensAnEnvelopeWithoutOne(t *testing.T) {
	t.Parallel()
	c, _ := known(t, nil)
	e := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{"n":1e400}`))
	if hash, err := e.Hash(); err == nil {
		t.Fatalf("its hash is %s", hash)
	}
	raw, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.cfg.Journal.RememberReceived("agent.x", e, raw, false)
	for _, tt := range []struct {
		from, hash       string
		found            bool
		answer, fetching envelope.Code
	}{
		{"human.ada", "", true, "", ""},
		{"human.ada", "sha256:0", false, envelope.CodeHashMismatch, envelope.CodeHashMismatch},
		{"human.eve", "", false, "", envelope.CodeDenied},
		{"human.eve", "sha256:0", false, "", envelope.CodeHashMismatch},
	} {
		task := Task{Envelope: envelope.New(envelope.TypeTask, tt.from, "agent.x", intents.ContextFetch, wire.MustJSON(intents.FetchTask{ID: e.ID, Hash: tt.hash}))}
		answer, err := c.AnswerFetch(t.Context(), task)
		if answer.Found != tt.found || code(err) != tt.answer {
			t.Errorf("%s, hash %q: found %v, %v", tt.from, tt.hash, answer.Found, err)
		}
		if _, err := c.Fetch(t.Context(), task, envelope.Reference{ID: e.ID, Hash: tt.hash}); code(err) != tt.fetching {
			t.Errorf("%s, hash %q: fetched, %v", tt.from, tt.hash, err)
		}
	}
}

// A fetch is in the journal when it is answered. It does not find itself.
func TestAFetchDoesNotFindItself(t *testing.T) {
	t.Parallel()
	c, _ := known(t, nil)
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", intents.ContextFetch, nil)
	task.Payload = wire.MustJSON(intents.FetchTask{ID: task.ID})
	raw, err := task.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.cfg.Journal.RememberReceived("agent.x", task, raw, false)
	if answer, err := c.AnswerFetch(t.Context(), Task{Envelope: task}); err != nil || answer.Found {
		t.Errorf("%+v, %v", answer, err)
	}
}

// down is a store that cannot be reached.
type down struct{}

func (down) Post(string, string, []byte) error                      { return errDown }
func (down) Get(context.Context, string, string) ([]byte, error)    { return nil, errDown }
func (down) Add(context.Context, string, string, []byte) error      { return errDown }
func (down) List(context.Context, string, string) ([][]byte, error) { return nil, errDown }

var errDown = errors.New("it is down")

// A store that does not answer is not one that has nothing, and what it did not store is not
// acknowledged.
func TestStoresThatAreDown(t *testing.T) {
	t.Parallel()
	c, e := known(t, nil)
	log := slog.New(slog.DiscardHandler)
	c.cfg.Shared = down{}
	refute := Task{Envelope: envelope.New(envelope.TypeTask, "agent.y", "agent.x", intents.ContextRefute, wire.MustJSON(intents.RefuteTask{ID: e.ID, Reason: "wrong"}))}
	if answer, err := c.AnswerRefute(t.Context(), refute); answer.Acknowledged || code(err) != envelope.CodeUnavailable {
		t.Errorf("refuted: %+v, %v", answer, err)
	}
	fetch := Task{Envelope: envelope.New(envelope.TypeTask, "human.ada", "agent.x", intents.ContextFetch, wire.MustJSON(intents.FetchTask{ID: e.ID}))}
	if answer, err := c.AnswerFetch(t.Context(), fetch); err != nil || len(answer.Refutations) != 1 {
		t.Errorf("fetched: %+v, %v", answer, err)
	}
	c.cfg.Journal = journal.New(down{}, log)
	if answer, err := c.AnswerFetch(t.Context(), fetch); code(err) != envelope.CodeUnavailable {
		t.Errorf("fetched: %+v, %v", answer, err)
	}
	if answer, err := c.AnswerRefute(t.Context(), refute); answer.Acknowledged || code(err) != envelope.CodeUnavailable {
		t.Errorf("refuted: %+v, %v", answer, err)
	}
	if fetched, err := c.Fetch(t.Context(), fetch, envelope.Reference{ID: e.ID, Locator: "agent.y"}); code(err) != envelope.CodeUnavailable {
		t.Errorf("fetched: %+v, %v", fetched, err)
	}
}

// soon is a store of refutations that is not there yet.
type soon struct{ down }

func (soon) Add(context.Context, string, string, []byte) error { return nil }
func (soon) List(context.Context, string, string) ([][]byte, error) {
	return nil, jetstream.ErrNotFound
}

// Until there is a store, this process's own memory counts, and that is worth no warning.
func TestRefutationsBeforeThereIsAStore(t *testing.T) {
	t.Parallel()
	c, e := known(t, nil)
	var log strings.Builder
	c.cfg.Shared, c.cfg.Log = soon{}, slog.New(slog.NewTextHandler(&log, nil))
	refute := Task{Envelope: envelope.New(envelope.TypeTask, "agent.y", "agent.x", intents.ContextRefute, wire.MustJSON(intents.RefuteTask{ID: e.ID, Reason: "wrong"}))}
	if answer, err := c.AnswerRefute(t.Context(), refute); !answer.Acknowledged || err != nil {
		t.Errorf("refuted: %+v, %v", answer, err)
	}
	if found := c.refutations(t.Context(), e.ID); len(found) != 1 || log.Len() > 0 {
		t.Errorf("found %+v; the log is %s", found, log.String())
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
	refute.From, refute.Payload = "agent."+strings.Repeat("y", 1000), wire.MustJSON(intents.RefuteTask{ID: e.ID, Reason: strings.Repeat("w", 1000)})
	if _, err := c.AnswerRefute(t.Context(), Task{Envelope: refute}); err != nil {
		t.Fatal(err)
	}
	if kept := c.refutations(t.Context(), e.ID); len(kept) != 2 || kept[1].By != clip.Text(refute.From, 128) || kept[1].Reason != clip.Text(strings.Repeat("w", 1000), journal.MaxReason) {
		t.Errorf("kept %+v", kept)
	}
}

// Refutations of invented ids would fill a bucket that refuses when it is full, for all agents. The id of
// the refutation itself is one that the sender makes up.
func TestOnlyKnownContextsAreRefuted(t *testing.T) {
	t.Parallel()
	c, _ := known(t, nil)
	c.cfg.Shared = down{} // would refuse
	refute := envelope.New(envelope.TypeTask, "agent.y", "agent.x", intents.ContextRefute, nil)
	for _, id := range []string{"unknown", refute.ID} {
		refute.Payload = wire.MustJSON(intents.RefuteTask{ID: id, Reason: "wrong"})
		raw, err := refute.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.cfg.Journal.RememberReceived("agent.x", refute, raw, false)
		if answer, err := c.AnswerRefute(t.Context(), Task{Envelope: refute}); answer.Acknowledged || err != nil {
			t.Errorf("%q: %+v, %v", id, answer, err)
		}
		if kept := c.cfg.Refuted.List(id); len(kept) != 0 {
			t.Errorf("%q: kept %s", id, kept)
		}
	}
}

// An unsigned from proves nothing: such a refutation stands beside that of the named sender, and does not
// take its place.
func TestAnUnverifiedRefutationReplacesNoVerifiedOne(t *testing.T) {
	t.Parallel()
	c, e := known(t, nil)
	for _, one := range []struct {
		reason   string
		verified bool
		want     string
	}{
		{"forged before", false, "forged before"},
		{"first", true, "first"},
		{"forged", false, "first, forged"},
		{"forged again", false, "first, forged again"},
		{"second", true, "second"},
	} {
		refute := envelope.New(envelope.TypeTask, "agent.y", "agent.x", intents.ContextRefute, wire.MustJSON(intents.RefuteTask{ID: e.ID, Reason: one.reason}))
		if answer, err := c.AnswerRefute(t.Context(), Task{Envelope: refute, Verified: one.verified}); err != nil || !answer.Acknowledged {
			t.Fatalf("%+v, %v", answer, err)
		}
		var kept []string
		for _, r := range c.refutations(t.Context(), e.ID) {
			kept = append(kept, r.Reason)
		}
		if got := strings.Join(kept, ", "); got != one.want {
			t.Errorf("after %q, kept %q, want %q", one.reason, got, one.want)
		}
	}
}

// A sender that refutes a context again says it in other words: its earlier refutation, and no other
// sender's, makes room.
func TestARefutationReplacesTheSendersEarlierOne(t *testing.T) {
	t.Parallel()
	c, e := known(t, nil)
	for i := range journal.MaxRefutations + 2 {
		refute := envelope.New(envelope.TypeTask, "agent.y", "agent.x", intents.ContextRefute, wire.MustJSON(intents.RefuteTask{ID: e.ID, Reason: strconv.Itoa(i)}))
		if i == 1 {
			refute.From = "agent.z"
		}
		if answer, err := c.AnswerRefute(t.Context(), Task{Envelope: refute}); err != nil || !answer.Acknowledged {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	kept := c.refutations(t.Context(), e.ID)
	if len(kept) != 2 || kept[0].By != "agent.z" || kept[0].Reason != "1" || kept[1].By != "agent.y" || kept[1].Reason != strconv.Itoa(journal.MaxRefutations+1) {
		t.Errorf("kept %+v", kept)
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

package answers

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/internal/chain"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
)

// linked is one link of a header Aee-Handoff, and who signs it.
type linked struct {
	by, from, to       string
	task, caller, corr string // "": those of the task
}

const (
	askedTask, askedCorr = "task-0001", "workflow-1"
	asker, stranger      = "human.ada", "human.eve"
)

// headerOf writes the links as a reply carries them.
func headerOf(t *testing.T, keys map[string]*sign.Signer, links []linked) string {
	t.Helper()
	or := func(text, instead string) string {
		if text == "" {
			return instead
		}
		return text
	}
	var texts []string
	for _, l := range links {
		e, err := chain.NewLink(l.from, l.to, or(l.corr, askedCorr), chain.About{Task: or(l.task, askedTask), Caller: or(l.caller, asker)})
		if err == nil {
			err = keys[l.by].Sign(e)
		}
		text, textErr := chain.Text(e)
		if err != nil || textErr != nil {
			t.Fatal(err, textErr)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// Each agent of the rows below has a key that is trusted here. What keeps agent.m from answering
// is what the chain says, or who signed a link of it.
func TestOnlyTheChainOfThisTaskProvesAnAuthor(t *testing.T) {
	t.Parallel()
	ring, keys := &sign.Ring{}, map[string]*sign.Signer{}
	for _, entity := range []string{"agent.a", "agent.b", "agent.m", "agent.x"} {
		s, k, err := sign.NewKey("key-"+strings.TrimPrefix(entity, "agent."), sign.Ed25519, entity)
		if err == nil {
			err = ring.Put(sign.Local, k)
		}
		if err != nil {
			t.Fatal(err)
		}
		keys[entity] = s
	}
	r := Reader{Verifier: sign.Verifier{Ring: ring, Mode: sign.Required}}
	direct := []linked{{by: "agent.a", from: "agent.a", to: "agent.m"}}
	for _, c := range []struct {
		name  string
		links []linked
		to    string // of the reply; "": the asker
		good  bool
	}{
		{"one link", direct, "", true},
		{"two links", []linked{{by: "agent.a", from: "agent.a", to: "agent.b"}, {by: "agent.b", from: "agent.b", to: "agent.m"}}, "", true},
		{"from another than the addressee", []linked{{by: "agent.x", from: "agent.x", to: "agent.m"}}, "", false},
		{"to another than the author", []linked{{by: "agent.a", from: "agent.a", to: "agent.x"}}, "", false},
		{"of another task", []linked{{by: "agent.a", from: "agent.a", to: "agent.m", task: "task-0002"}}, "", false},
		{"of another corr", []linked{{by: "agent.a", from: "agent.a", to: "agent.m", corr: "workflow-2"}}, "", false},
		{"of another caller", []linked{{by: "agent.a", from: "agent.a", to: "agent.m", caller: stranger}}, stranger, false},
		{"a reply to another than the caller", direct, stranger, false},
		{"the author signs the only link", []linked{{by: "agent.m", from: "agent.a", to: "agent.m"}}, "", false},
		{"the author signs the first link", []linked{{by: "agent.m", from: "agent.a", to: "agent.b"}, {by: "agent.b", from: "agent.b", to: "agent.m"}}, "", false},
		{"the author signs the last link", []linked{{by: "agent.a", from: "agent.a", to: "agent.b"}, {by: "agent.m", from: "agent.b", to: "agent.m"}}, "", false},
	} {
		to := c.to
		if to == "" {
			to = asker
		}
		reply := envelope.New(envelope.TypeResult, "agent.m", to, "code.review", json.RawMessage(`{}`))
		err := r.MayAnswer("agent.a", askedTask, askedCorr, asker, headerOf(t, keys, c.links), reply, time.Now(), nil)
		if c.good != (err == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
	}

	// The chain that was verified last proves the author of that reply, and no other.
	var known Known
	header := headerOf(t, keys, direct)
	for _, c := range []struct {
		from, to string
		good     bool
	}{{"agent.m", asker, true}, {"agent.m", asker, true}, {"agent.x", asker, false}, {"agent.m", stranger, false}} {
		reply := envelope.New(envelope.TypeStream, c.from, c.to, "code.review", json.RawMessage(`{}`))
		if err := r.MayAnswer("agent.a", askedTask, askedCorr, asker, header, reply, time.Now(), &known); c.good != (err == nil) {
			t.Errorf("the next reply of a stream, from %s to %s: %v", c.from, c.to, err)
		}
	}
}

// A delegated task is answered long after its link was signed. The key of the link may have expired
// since, but an expired key proves nothing about a task that was sent later.
func TestAChainOutlivesItsKeys(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const day = 24 * time.Hour
	for _, c := range []struct {
		name   string
		linked time.Time // the ts of the link
		sent   time.Time // of the task; zero: its id does not say
		change func(*sign.Key)
		want   envelope.Code
	}{
		{"a valid key", ago(time.Hour), time.Time{}, func(*sign.Key) {}, ""},
		{"expired since", ago(time.Hour), ago(2 * time.Hour), func(k *sign.Key) { k.Expires = ago(time.Hour / 2) }, ""},
		{"expired since, of a task whose id has no time", ago(time.Hour), time.Time{}, func(k *sign.Key) { k.Expires = ago(time.Hour / 2) }, ""},
		{"expired before", ago(time.Hour), time.Time{}, func(k *sign.Key) { k.Expires = ago(2 * time.Hour) }, envelope.CodeKeyInvalid},
		{"revoked since", ago(time.Hour), time.Time{}, func(k *sign.Key) { k.Revoked = true }, envelope.CodeKeyInvalid},
		{"expired since, and revoked", ago(time.Hour), time.Time{}, func(k *sign.Key) { k.Expires, k.Revoked = ago(time.Hour/2), true }, envelope.CodeKeyInvalid},
		{"not valid yet when it signed, and valid now", ago(time.Hour), time.Time{}, func(k *sign.Key) { k.NotBefore = ago(time.Minute) }, ""},
		{"signed before the task was sent", ago(time.Hour), ago(time.Hour / 4), func(k *sign.Key) { k.Expires = ago(time.Hour / 2) }, envelope.CodeKeyInvalid},
		{"by a clock that is slow", ago(time.Hour), ago(time.Hour - 2*time.Minute), func(k *sign.Key) { k.Expires = ago(time.Hour / 2) }, ""},
		{"longer ago than a task may take", ago(31 * day), time.Time{}, func(k *sign.Key) { k.Expires = ago(day) }, envelope.CodeKeyInvalid},
		{"later than the answer", now.Add(time.Hour), time.Time{}, func(k *sign.Key) { k.NotBefore = now.Add(time.Minute) }, envelope.CodeKeyInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			task := askedTask
			if !c.sent.IsZero() {
				task = envelope.DeriveID("none", c.sent)
			}
			signer, key, err := sign.NewKey("key-a", sign.Ed25519, "agent.a")
			if err != nil {
				t.Fatal(err)
			}
			ring := &sign.Ring{}
			c.change(&key)
			if err := ring.Put(sign.Local, key); err != nil {
				t.Fatal(err)
			}
			link, err := chain.NewLink("agent.a", "agent.m", askedCorr, chain.About{Task: task, Caller: asker})
			if err != nil {
				t.Fatal(err)
			}
			link.TS = c.linked.UTC().Format(envelope.TimeLayout)
			if err := signer.Sign(link); err != nil {
				t.Fatal(err)
			}
			text, err := chain.Text(link)
			if err != nil {
				t.Fatal(err)
			}
			r := Reader{Verifier: sign.Verifier{Ring: ring, Mode: sign.Required}}
			reply := envelope.New(envelope.TypeResult, "agent.m", asker, "code.review", json.RawMessage(`{}`))
			err = r.MayAnswer("agent.a", task, askedCorr, asker, text, reply, now, nil)
			if (c.want == "") != (err == nil) || err != nil && !fault.IsCode(err, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// An operator may take a task back, and may not answer it.
func TestAnOperatorWithdrawsAndDoesNotAnswer(t *testing.T) {
	t.Parallel()
	r := Reader{Operators: []string{"human.op1"}}
	problem := func(code envelope.Code) json.RawMessage {
		return json.RawMessage(`{"code":"` + string(code) + `","message":"no","retryable":false}`)
	}
	for _, c := range []struct {
		kind    envelope.Type
		from    string
		payload json.RawMessage
		want    bool
	}{
		{envelope.TypeError, "human.op1", problem(envelope.CodeCancelled), true},
		{envelope.TypeError, "human.op1", problem(envelope.CodeInternal), false},
		{envelope.TypeResult, "human.op1", problem(envelope.CodeCancelled), false},
		{envelope.TypeError, stranger, problem(envelope.CodeCancelled), false},
	} {
		if got := r.Withdrawn(envelope.New(c.kind, c.from, asker, "code.review", c.payload)); got != c.want {
			t.Errorf("%s of %s, %s: %t", c.kind, c.from, c.payload, got)
		}
	}
}

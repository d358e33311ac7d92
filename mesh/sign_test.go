package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

func TestSignaturesAreCheckedAndRefusalsRaiseAnAlert(t *testing.T) {
	t.Parallel()
	for _, alg := range []sign.Alg{sign.Ed25519, sign.HS256} {
		k := newKeys(t)
		good := k.signer("good", alg, "human.*")
		foreign := k.signer("foreign", alg, "agent.>")
		old := k.signer("old", alg, ">")
		gone := k.signer("gone", alg, ">")
		early := k.signer("early", alg, ">")
		stranger, _, err := sign.NewKey("stranger", alg, ">")
		if err != nil {
			t.Fatal(err)
		}
		change := func(kid string, f func(*sign.Key)) {
			key, _ := k.ring.Lookup(kid)
			f(&key)
			if err := k.ring.Put(sign.Local, key); err != nil {
				t.Fatal(err)
			}
		}
		change("old", func(k *sign.Key) { k.Expires = time.Now().Add(-time.Hour) })
		change("early", func(k *sign.Key) { k.NotBefore = time.Now().Add(time.Hour) })
		change("gone", func(k *sign.Key) { k.Revoked = true })

		for _, c := range []struct {
			name     string
			required bool
			make     func(*envelope.Envelope)
			want     envelope.Code
			message  string
		}{
			{"unsigned", false, func(*envelope.Envelope) {}, "", ""},
			{"unsigned where required", true, func(*envelope.Envelope) {}, envelope.CodeSigRequired, "a signature is required here and there is none"},
			{"signed", true, func(e *envelope.Envelope) { good.Sign(e) }, "", ""},
			{"priority and trace are open", true, func(e *envelope.Envelope) {
				good.Sign(e)
				e.Priority, e.Trace = envelope.PriorityLow, json.RawMessage(`{"trace_id":"a","span_id":"b"}`)
			}, "", ""},
			{"payload changed", false, func(e *envelope.Envelope) { good.Sign(e); e.Payload = json.RawMessage(`{"n":2}`) }, envelope.CodeSigInvalid, `the signature by key "good" does not verify`},
			{"requires changed", false, func(e *envelope.Envelope) { good.Sign(e); e.Requires = json.RawMessage(`{"timeout_ms":5}`) }, envelope.CodeSigInvalid, `the signature by key "good" does not verify`},
			{"unknown kid", false, func(e *envelope.Envelope) { stranger.Sign(e) }, envelope.CodeKeyUnknown, `key "stranger" is not known here`},
			{"foreign from", false, func(e *envelope.Envelope) { foreign.Sign(e) }, envelope.CodeFromDenied, `key "foreign" may not speak for this from`},
			{"string sig", false, func(e *envelope.Envelope) { e.Sig = json.RawMessage(`"c2ln"`) }, envelope.CodeSigUncheckable, "sig is a string, which cannot be verified here; it must be an object with alg, kid and value"},
			{"unknown alg", false, func(e *envelope.Envelope) { e.Sig = json.RawMessage(`{"alg":"none","kid":"good","value":""}`) }, envelope.CodeSigUncheckable, "sig.alg must be ed25519 or HS256 here"},
			{"half a sig", false, func(e *envelope.Envelope) { e.Sig = json.RawMessage(`{"kid":"good"}`) }, envelope.CodeSigInvalid, "sig must be an object with the strings alg, kid and value"},
			{"expired", false, func(e *envelope.Envelope) { old.Sign(e) }, envelope.CodeKeyInvalid, ""},
			{"not yet", false, func(e *envelope.Envelope) { early.Sign(e) }, envelope.CodeKeyInvalid, ""},
			{"revoked", false, func(e *envelope.Envelope) { gone.Sign(e) }, envelope.CodeKeyInvalid, `key "gone" is revoked`},
		} {
			t.Run(string(alg)+" "+c.name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				alerts := r.listen("bus.mesh.alert")
				verifier := k.verifier()
				if c.required {
					verifier.Mode = sign.Required
				}
				r.serve(r.node(mesh.Config{Verifier: verifier}), mesh.Agent{Handler: echo})
				task := newTask(reviewer, "code.review", `{"n":1}`)
				c.make(task)
				got := r.request(task)
				if c.want == "" {
					same(t, got, task.Reply(envelope.TypeResult, task.Payload))
					settle(t, r.nc)
					empty(t, "alerts", alerts)
					return
				}
				problem := errorOf(t, got)
				equal(t, "code", problem.Code, c.want)
				if c.message != "" {
					equal(t, "message", problem.Message, c.message)
				}
				e := parse(t, within(t, "an alert", alerts).Data)
				a := alertOf(t, e)
				equal(t, "alert", a, alert{Code: c.want, Message: problem.Message, ID: task.ID, Sender: ada, Intent: "code.review", Instance: a.Instance})
				equal(t, "its corr", e.Corr, task.Corr)
			})
		}
	}
}

func TestAlertsAreRateLimited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alerts := r.listen("bus.mesh.alert")
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	started := time.Now()
	const flood = 500
	for range flood {
		e := newTask(reviewer, "code.review", `{}`)
		e.Sig = json.RawMessage(`"x"`)
		r.request(e)
	}
	settle(t, r.nc)
	seconds := int(time.Since(started)/time.Second) + 1
	if n := len(drained(alerts)); n < 1 || n > seconds {
		t.Errorf("%d alerts in %d seconds", n, seconds)
	}
}

func TestSignatureModeOffLooksAtNone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{Verifier: sign.Verifier{Mode: sign.Off}}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	task.Sig = json.RawMessage(`"x"`)
	equal(t, "type", r.request(task).Type, envelope.TypeResult)
}

func TestEverythingAnAgentSendsIsSigned(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	own, nodes := k.signer("reviewer", sign.Ed25519, reviewer), k.signer("client", sign.HS256, ada)
	r := newRig(t)
	all := r.listen(">")
	w := r.serve(r.node(mesh.Config{Verifier: sign.Verifier{Ring: k.ring, Mode: sign.Required}}), mesh.Agent{Signer: own, Handler: mesh.HandlerFunc(streamFive)})
	client := r.node(mesh.Config{Entity: ada, Signer: nodes, Verifier: sign.Verifier{Ring: k.ring, Mode: sign.Required}})
	for _, cbor := range []bool{false, true} {
		var chunks int
		reply, err := client.Send(t.Context(), newTask(reviewer, "code.review", `{"x":1.5}`), mesh.SendOptions{CBOR: cbor, OnStream: func(*envelope.Envelope) error { chunks++; return nil }})
		if err != nil || chunks != 5 {
			t.Fatalf("%d chunks, %v", chunks, err)
		}
		equal(t, "result", reply.Type, envelope.TypeResult)
	}
	if _, err := client.Ask(t.Context(), reviewer, "hi"); codeOf(err) != envelope.CodeSigRequired {
		t.Errorf("ask: %v", err)
	}
	w.end()
	settle(t, r.nc)
	n := 0
	for _, msg := range drained(all) {
		e, err := envelope.Parse(msg.Data)
		if msg.Header.Get("Content-Type") == "application/cbor" {
			e, err = envelope.ParseCBOR(msg.Data)
		}
		if err != nil {
			continue // micro, plain text and empty messages
		}
		n++
		identity, err := sign.Verifier{Ring: k.ring, Mode: sign.Required}.Verify(e, time.Now())
		if err != nil || identity.KID != strings.TrimPrefix(map[string]string{ada: "client", reviewer: "reviewer"}[e.From], "") {
			t.Errorf("%s %s from %s: %v %v", msg.Subject, e.Type, e.From, identity, err)
		}
	}
	if n < 18 {
		t.Errorf("%d envelopes were seen", n)
	}
}

func TestHandlerLearnsWhoseSignatureItWas(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	signer := k.signer("ada", sign.HS256, ada)
	r := newRig(t)
	g := newGate(t)
	g.open()
	r.serve(r.node(mesh.Config{Verifier: k.verifier()}), mesh.Agent{Handler: g})
	r.request(signed(t, signer, newTask(reviewer, "code.review", `{}`)))
	equal(t, "signed", within(t, "a task", g.entered).KeyID, "ada")
	r.request(newTask(reviewer, "code.review", `{}`))
	equal(t, "unsigned", within(t, "a task", g.entered).KeyID, "")
}

func TestReplayAndStaleAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alerts := r.listen("bus.mesh.alert")
	r.serve(r.node(mesh.Config{Skew: time.Minute}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	equal(t, "first", r.request(task).Type, envelope.TypeResult)
	equal(t, "again", errorOf(t, r.request(task)).Code, envelope.CodeReplay)
	a := alertOf(t, parse(t, within(t, "an alert", alerts).Data))
	equal(t, "alert", [2]string{string(a.Code), a.ID}, [2]string{"E_REPLAY", task.ID})
	// No sender can spoil another's id.
	task.From = "human.eve"
	equal(t, "another's", r.request(task).Type, envelope.TypeResult)
	for name, ts := range map[string]string{
		"old":         time.Now().Add(-2 * time.Minute).UTC().Format(time.RFC3339),
		"from ahead":  time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339),
		"not a time":  "yesterday, I think",
		"of no place": "2026-11-20T22:00",
	} {
		e := newTask(reviewer, "code.review", `{}`)
		e.TS = ts
		equal(t, name, errorOf(t, r.request(e)).Code, envelope.CodeStale)
	}
	equal(t, "counted", r.counters(reviewer)["replayed"], 1)
}

func TestReplayAndSkewChecksCanBeOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{ReplayWindow: -1, Skew: -1}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	task.TS = "long, long ago"
	for range 2 {
		equal(t, "type", r.request(task).Type, envelope.TypeResult)
	}
}

func TestReplayIsRefusedByTheWholeMesh(t *testing.T) {
	t.Parallel()
	r := rigWith(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		node := r.node(mesh.Config{})
		window := seen.New(js, node.Subjects(), time.Minute)
		r.serve(r.node(mesh.Config{Seen: window, SeenUnsigned: true}), mesh.Agent{Handler: echo})
	}
	for i := range 10 {
		task := newTask(reviewer, "code.review", `{}`)
		task.From = "agent." + strings.Repeat("ü", 50*i+1) // longer, escaped, than a key may be
		equal(t, "first", r.request(task).Type, envelope.TypeResult)
		for range 3 { // whichever worker gets it
			equal(t, "again", errorOf(t, r.request(task)).Code, envelope.CodeReplay)
		}
		other := newTask(reviewer, "code.review", `{}`)
		other.ID, other.From = task.ID, "agent.eve" // no sender uses up the ids of another
		equal(t, "another sender's", r.request(other).Type, envelope.TypeResult)
	}
}

// The window says that an id is there, and not who has it: its replica lags behind, or cannot be
// read. Then the task is a replay also where no signatures are required.
func TestAReplayIsRefusedThoughItsHolderCannotBeRead(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	r := rigWith(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_aee_seen")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowDirect = false
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		window := seen.New(js, r.node(mesh.Config{}).Subjects(), time.Minute)
		r.serve(r.node(mesh.Config{Verifier: k.verifier(), Seen: window}), mesh.Agent{Handler: echo})
	}
	task := signed(t, k.signer("ada", sign.Ed25519, ada), newTask(reviewer, "code.review", `{}`))
	equal(t, "first", r.request(task).Type, envelope.TypeResult)
	for range 12 { // whichever worker gets it
		equal(t, "again", errorOf(t, r.request(task)).Code, envelope.CodeReplay)
	}
}

func TestTaskIsRefusedWhereReplayCannotBeKnown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store := &memSeen{err: errors.New("secret: no quorum")}
	r.serve(r.node(mesh.Config{Seen: store, SeenUnsigned: true}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	same(t, r.request(task), task.ReplyError(envelope.Errorf(envelope.CodeUnavailable, "the mesh's replay window cannot be asked for now").WithBackoff(time.Second).NotBegun(task)))
	store.mu.Lock()
	store.err = nil
	store.mu.Unlock()
	equal(t, "later", r.request(newTask(reviewer, "code.review", `{}`)).Type, envelope.TypeResult)
}

// A task that was refused because the replay window could not be asked has not begun, so its sender
// tries again. If it was the task of a member of the team that could not begin, the team has.
func TestATaskThatTheReplayWindowKeptOutIsSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store := &memSeen{err: errors.New("no quorum")}
	const lead = "agent.lead"
	r.serve(r.node(mesh.Config{Seen: store, SeenUnsigned: true}), mesh.Agent{Handler: echo})
	n := r.node(mesh.Config{})
	var begun atomic.Int32
	r.serve(n, mesh.Agent{Entity: lead, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		begun.Add(1)
		_, err := n.Send(ctx, newTask(reviewer, "code.review", `{}`), mesh.SendOptions{})
		return nil, err
	})})
	_, err := n.Send(t.Context(), newTask(lead, "code.review", `{}`), mesh.SendOptions{Retries: 2})
	equal(t, "the team's outcome", codeOf(err), envelope.CodeUnavailable)
	equal(t, "how often the team began", begun.Load(), int32(1))

	reply, err := n.Send(t.Context(), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{Retries: 2, OnRetry: func(_ int, _ time.Duration, why *envelope.Error) {
		equal(t, "why it is sent again", why.Code, envelope.CodeUnavailable)
		store.mu.Lock()
		defer store.mu.Unlock()
		store.err = nil
	}})
	if err != nil || reply.Type != envelope.TypeResult {
		t.Errorf("%v %v", reply, err)
	}
}

// While JetStream is away, an operator still asks who serves, and how each worker is: such an answer
// changes nothing and tells little, so that the mesh's replay window is not asked. The process's own
// window still refuses a repetition.
func TestAWorkerTellsOfItselfWhileTheReplayWindowCannotBeAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := newKeys(t)
	signer := k.signer("ada", sign.Ed25519, ada)
	verifier := k.verifier()
	verifier.Mode = sign.Required
	r.serve(r.node(mesh.Config{Verifier: verifier, Seen: &memSeen{err: errors.New("no quorum")}, SeenUnsigned: true}), mesh.Agent{Handler: echo})
	for _, intent := range []string{intents.StatusPing, intents.StatusHealth, intents.SpecQuery, intents.CapabilityList} {
		task := signed(t, signer, newTask(reviewer, intent, `{}`))
		equal(t, intent, r.request(task).Type, envelope.TypeResult)
		equal(t, intent+" again", errorOf(t, r.request(task)).Code, envelope.CodeReplay)
	}
	for intent, payload := range map[string]string{"code.review": `{}`, intents.ContextFetch: `{"id":"x"}`, intents.ValidatePayload: `{"intent":"code.review","payload":{}}`} {
		equal(t, intent, errorOf(t, r.request(signed(t, signer, newTask(reviewer, intent, payload)))).Code, envelope.CodeUnavailable)
	}
}

func TestQuotasLimitSenders(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	signer := k.signer("ada", sign.HS256, ">")
	r := newRig(t)
	r.serve(r.node(mesh.Config{Verifier: k.verifier(), Quotas: mesh.Quotas{
		Rate: 0.001, Burst: 3, UnknownRate: 0.001, UnknownBurst: 2, Known: []string{"agent.known"},
	}}), mesh.Agent{Handler: echo})
	count := func(n int, from string, signed bool) (ok int, last *envelope.Envelope) {
		for range n {
			task := newTask(reviewer, "code.review", `{}`)
			task.From = from
			if signed {
				signer.Sign(task)
			}
			if last = r.request(task); last.Type == envelope.TypeResult {
				ok++
			}
		}
		return ok, last
	}
	for _, c := range []struct {
		from   string
		signed bool
		want   int
	}{{ada, false, 2}, {ada, true, 3}, {ada, true, 0}, {"agent.known", false, 3}, {"agent.eve", false, 2}} {
		ok, last := count(5, c.from, c.signed)
		equal(t, fmt.Sprintf("%+v", c), ok, c.want)
		e := errorOf(t, last)
		equal(t, "code", [2]any{e.Code, e.Retryable}, [2]any{envelope.CodeRateLimited, true})
		if e.BackoffMS < 100 {
			t.Errorf("backoff %d", e.BackoffMS)
		}
	}
	// Events do not go round it.
	for range 5 {
		e := newTask(reviewer, "code.review", `{}`)
		e.Type, e.From = envelope.TypeEvent, "agent.eve"
		equal(t, "event", errorOf(t, r.request(e)).Code, envelope.CodeRateLimited)
	}
}

func TestPriorityIsCapped(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	signer := k.signer("ada", sign.HS256, ">")
	r := newRig(t)
	g := newGate(t)
	g.open()
	r.serve(r.node(mesh.Config{Verifier: k.verifier(), Quotas: mesh.Quotas{Cap: envelope.PriorityHigh, UnknownCap: envelope.PriorityNormal, UrgentRate: 0.001}}), mesh.Agent{Handler: g})
	for _, c := range []struct {
		from   string
		signed bool
		asked  envelope.Priority
		want   envelope.Priority
	}{
		{"agent.a", false, "urgent", "normal"}, {"agent.a", false, "low", "low"},
		{"agent.a", true, "urgent", "high"}, {"agent.a", true, "high", "normal"}, // the second within the second
		{"agent.b", true, "low", "low"}, {"agent.b", true, "high", "high"}, {"agent.b", true, "urgent", "normal"},
	} {
		task := newTask(reviewer, "code.review", `{}`)
		task.From, task.Priority = c.from, c.asked
		if c.signed {
			signer.Sign(task)
		}
		r.request(task)
		equal(t, fmt.Sprintf("%+v", c), within(t, "a task", g.entered).Envelope.Priority, c.want)
		// The envelope that came keeps its hash.
		hash, err := task.Hash()
		if err != nil {
			t.Fatal(err)
		}
		fetch := newTask(reviewer, intents.ContextFetch, fmt.Sprintf(`{"id":%q,"hash":%q}`, task.ID, hash))
		fetch.From = "human.zoe"
		equal(t, "fetch", r.request(fetch).Type, envelope.TypeResult)
	}
}

func TestUnknownSendersShareALimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{Quotas: mesh.Quotas{UnknownRate: 0.001, UnknownBurst: 1}}), mesh.Agent{Handler: echo})
	for i := range 10 {
		task := newTask(reviewer, "code.review", `{}`)
		task.From = fmt.Sprintf("human.n%d", i)
		equal(t, task.From, r.request(task).Type, envelope.TypeResult)
	}
	task := newTask(reviewer, "code.review", `{}`)
	task.From = "human.onemore"
	equal(t, "one name more", envelope.ErrorOf(r.request(task)).Code, envelope.CodeRateLimited)
}

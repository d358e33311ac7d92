package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

// result is the payload of a result, or a failure.
func (r *rig) result(intent, payload string) string {
	r.t.Helper()
	e := r.request(newTask(reviewer, intent, payload))
	if e.Type != envelope.TypeResult {
		r.t.Fatalf("%s: %s", intent, e.Payload)
	}
	return canonical(r.t, e.Payload)
}

func (r *rig) code(intent, payload string) envelope.Code {
	r.t.Helper()
	return errorOf(r.t, r.request(newTask(reviewer, intent, payload))).Code
}

func reviewIntents(t testing.TB) *intents.Registry {
	t.Helper()
	reg := intents.NewRegistry()
	if err := reg.Register(intents.Definition{
		Intent: "code.review",
		Task:   json.RawMessage(`{"type":"object","required":["path"],"properties":{"path":{"type":"string"}}}`),
		Result: json.RawMessage(`{"type":"object","required":["ok"],"properties":{"ok":{"type":"boolean"}}}`),
	}); err != nil {
		t.Fatal(err)
	}
	return reg
}

func TestReservedIntentsAreAnsweredWhileTheAgentIsBusy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: g, Queue: 1, Intents: reviewIntents(t), Health: func() mesh.Health {
		return mesh.Health{Status: "healthy", Details: map[string]any{"model": "up"}}
	}})
	first := newTask(reviewer, "code.review", `{"path":"x"}`)
	r.send(first)
	within(t, "the first task", g.entered)
	r.send(newTask(reviewer, "code.review", `{"path":"y"}`))

	var ping intents.PingResult
	json.Unmarshal([]byte(r.result(intents.StatusPing, `{}`)), &ping)
	if _, err := (&envelope.Envelope{TS: ping.TS}).Time(); !ping.Pong || !err {
		t.Errorf("ping: %+v", ping)
	}
	equal(t, "health", r.result(intents.StatusHealth, `{}`), `{"details":{"concurrency":1,"model":"up","queue":1,"queued":1,"reason":"the queue is full","running":1},"status":"degraded"}`)
	equal(t, "spec", r.result(intents.SpecQuery, `{}`), `{"aee_version":"1","extensions":["aee.ext.decision_evidence","mesh.ext.handoff"]}`)
	equal(t, "capabilities", r.result(intents.CapabilityList, `{"namespace_filter":"code"}`), `{"intents":["code.review"]}`)
	equal(t, "all capabilities", r.result(intents.CapabilityList, `{}`), `{"intents":["aee.capability.list","aee.context.fetch","aee.context.refute","aee.spec.query","aee.status.health","aee.status.ping","aee.validate.payload","code.review","mesh.task.cancel","mesh.task.migrate","mesh.task.pause","mesh.task.resume","mesh.task.settle","mesh.task.steer"]}`)
	equal(t, "valid", r.result(intents.ValidatePayload, `{"intent":"code.review","payload_to_validate":{"path":"x"}}`), `{"valid":true}`)
	equal(t, "invalid", strings.Contains(r.result(intents.ValidatePayload, `{"intent":"code.review","payload_to_validate":{"path":1},"type_hint":"task"}`), `"valid":false`), true)
	equal(t, "fetch", strings.HasPrefix(r.result(intents.ContextFetch, fmt.Sprintf(`{"id":%q}`, first.ID)), `{"envelope":{"corr":`), true)
	equal(t, "refute", r.result(intents.ContextRefute, fmt.Sprintf(`{"id":%q,"reason":"wrong"}`, first.ID)), `{"acknowledged":true}`)
	// Whatever is not as the draft wants it is refused.
	equal(t, "ping with a payload", r.code(intents.StatusPing, `{"x":1}`), envelope.CodeInputSchema)
	equal(t, "fetch without an id", r.code(intents.ContextFetch, `{}`), envelope.CodeInputSchema)
	equal(t, "no such intent", r.code("aee.status.sing", `{}`), envelope.CodeIntentReserved)
	equal(t, "in capitals", r.code("AEE.status.ping", `{}`), envelope.CodeIntentReserved)
	equal(t, "the mesh's own", r.code("mesh.task.repeat", `{}`), envelope.CodeIntentReserved)
	equal(t, "a command on the wrong subject", r.code(intents.TaskPause, `{"id":"01JFB2R1"}`), envelope.CodeUnexpectedType)
	equal(t, "validate an unknown intent", r.code(intents.ValidatePayload, `{"intent":"no.such","payload_to_validate":{}}`), envelope.CodeIntentUnknown)
}

func TestHealthOfThePanickingKindIsUnhealthy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo, Health: func() mesh.Health { panic("secret") }})
	got := r.result(intents.StatusHealth, `{}`)
	if !strings.Contains(got, `"status":"unhealthy"`) || strings.Contains(got, "secret") {
		t.Errorf("health: %s", got)
	}
	r.ping(reviewer)
}

func TestFetchFindsWhatWasSentAndReceived(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.other", Handler: echo})
	task := newTask(reviewer, "code.review", `{"n":9007199254740991}`)
	reply := r.request(task)
	for name, e := range map[string]*envelope.Envelope{"received": task, "sent": reply} {
		hash, err := e.Hash()
		if err != nil {
			t.Fatal(err)
		}
		want := canonical(t, []byte(fmt.Sprintf(`{"envelope":%s,"found":true,"hash":%q}`, encode(t, e), hash)))
		for _, ask := range []string{
			fmt.Sprintf(`{"id":%q}`, e.ID), fmt.Sprintf(`{"id":%q,"corr":%q,"hash":%q,"locator":"agent.reviewer"}`, e.ID, e.Corr, hash),
		} {
			equal(t, name, r.result(intents.ContextFetch, ask), want)
		}
		equal(t, "wrong hash", r.code(intents.ContextFetch, fmt.Sprintf(`{"id":%q,"hash":"sha256:00"}`, e.ID)), envelope.CodeHashMismatch)
		equal(t, "wrong corr", r.result(intents.ContextFetch, fmt.Sprintf(`{"id":%q,"corr":"another-one"}`, e.ID)), `{"found":false}`)
		foreign := newTask("agent.other", intents.ContextFetch, fmt.Sprintf(`{"id":%q}`, e.ID))
		equal(t, "of another agent", string(r.request(foreign).Payload), `{"found":false}`)
	}
	equal(t, "unknown", r.result(intents.ContextFetch, `{"id":"no-such-id"}`), `{"found":false}`)
	// A number that no hash covers does not hide the envelope.
	big := newTask(reviewer, "code.review", `{"n":12345678901234567890}`)
	r.request(big)
	equal(t, "big number", strings.Contains(string(r.request(newTask(reviewer, intents.ContextFetch, fmt.Sprintf(`{"id":%q}`, big.ID))).Payload), `"n":12345678901234567890`), true)
}

func TestRefutationsAreShownByLaterFetches(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	r.request(task)
	for _, reason := range []string{"stale", "wrong"} {
		r.result(intents.ContextRefute, fmt.Sprintf(`{"id":%q,"reason":%q}`, task.ID, reason))
	}
	equal(t, "an unknown context", r.result(intents.ContextRefute, `{"id":"unknown","reason":"wrong"}`), `{"acknowledged":false}`)
	var got intents.FetchResult
	json.Unmarshal([]byte(r.result(intents.ContextFetch, fmt.Sprintf(`{"id":%q}`, task.ID))), &got)
	for i := range got.Refutations {
		if got.Refutations[i].TS == "" {
			t.Error("a refutation has no time")
		}
		got.Refutations[i].TS = ""
	}
	equal(t, "refutations", got.Refutations, []intents.Refutation{{By: ada, Reason: "wrong"}})
}

// Refutations, which every sender may send, must not use up the memory.
func TestRefutationsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	r.request(task)
	for i := range 40 {
		refute := newTask(reviewer, intents.ContextRefute, fmt.Sprintf(`{"id":%q,"reason":%q}`, task.ID, strings.Repeat("x", 100<<10)))
		refute.From = fmt.Sprintf("agent.a%d", i)
		equal(t, "refuted", r.request(refute).Type, envelope.TypeResult)
	}
	got := r.result(intents.ContextFetch, fmt.Sprintf(`{"id":%q}`, task.ID))
	if n := strings.Count(got, `"by"`); n != 32 || len(got) > 64<<10 {
		t.Errorf("%d refutations in %d bytes", n, len(got))
	}
	equal(t, "a huge id", r.code(intents.ContextRefute, fmt.Sprintf(`{"id":%q,"reason":"x"}`, strings.Repeat("x", 100<<10))), envelope.CodeNotFound)
}

func TestJournalAndRefutationsThroughJetStream(t *testing.T) {
	t.Parallel()
	r := rigWith(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	serve := func() *worker {
		node := r.node(mesh.Config{})
		m := node.Subjects()
		return r.serve(r.node(mesh.Config{Journal: jetstream.NewJournal(js, m), Refutations: jetstream.NewRefutations(js, m)}), mesh.Agent{Handler: echo})
	}
	w := serve()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	reply := r.request(task)
	r.result(intents.ContextRefute, fmt.Sprintf(`{"id":%q,"reason":"stale"}`, task.ID))
	w.end()
	serve() // another process, with nothing in its memory
	for name, e := range map[string]*envelope.Envelope{"received": task, "sent": reply} {
		var got intents.FetchResult
		eventually(t, "the envelope is stored", func() bool {
			got = intents.FetchResult{}
			json.Unmarshal([]byte(r.result(intents.ContextFetch, fmt.Sprintf(`{"id":%q}`, e.ID))), &got)
			return got.Found
		})
		equal(t, name, canonical(t, got.Envelope), canonical(t, encode(t, e)))
		equal(t, "refuted", len(got.Refutations) == 1, name == "received")
	}
	equal(t, "unknown", r.result(intents.ContextFetch, `{"id":"no-such-id"}`), `{"found":false}`)
}

func TestUnknownIntentsByPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		agent   mesh.Agent
		intent  string
		payload string
		want    envelope.Code
	}{
		{"pass by default", mesh.Agent{}, "no.such", `{"x":1}`, ""},
		{"refused", mesh.Agent{RefuseUnknown: true}, "no.such", `{"path":"x"}`, envelope.CodeIntentUnknown},
		{"known is not refused", mesh.Agent{RefuseUnknown: true}, "code.review", `{"path":"x"}`, ""},
		{"as the default intent", mesh.Agent{DefaultIntent: "code.review"}, "no.such", `{"path":"x"}`, ""},
		{"as the default intent, wrong", mesh.Agent{DefaultIntent: "code.review"}, "no.such", `{"path":1}`, envelope.CodeInputSchema},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.agent.Intents = reviewIntents(t)
			c.agent.Handler = mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) { return json.RawMessage(`{"ok":true}`), nil })
			r.serve(r.node(mesh.Config{}), c.agent)
			got := r.request(newTask(reviewer, c.intent, c.payload))
			if c.want == "" {
				equal(t, "type", got.Type, envelope.TypeResult)
				return
			}
			equal(t, "code", errorOf(t, got).Code, c.want)
		})
	}
}

func TestOwnSchemasHoldBothWays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Intents: reviewIntents(t), Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		switch string(task.Envelope.Payload) {
		case `{"path":"bad"}`:
			return json.RawMessage(`{"ok":"yes"}`), nil
		case `{"path":"none"}`:
			return nil, nil
		}
		return json.RawMessage(`{"ok":true}`), nil
	})})
	equal(t, "good", r.result("code.review", `{"path":"x"}`), `{"ok":true}`)
	equal(t, "bad input", r.code("code.review", `{"path":1}`), envelope.CodeInputSchema)
	equal(t, "bad output", r.code("code.review", `{"path":"bad"}`), envelope.CodeOutputSchema)
	equal(t, "no output", r.code("code.review", `{"path":"none"}`), envelope.CodeOutputSchema)
}

func TestConstraintsThatCannotBeKeptAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		return task.Envelope.Payload, nil
	})})
	full := `{"decision_evidence":{"decision":"d","reason_summary":"r","inputs_used":[],"tools_used":[],"action_taken":"a","confidence":1,"context_refs":[]}}`
	for requires, want := range map[string]envelope.Code{
		`{"timeout_ms":"soon"}`:             envelope.CodeRequires,
		`{"timeout_ms":0}`:                  envelope.CodeRequires,
		`{"timeout_ms":-1}`:                 envelope.CodeRequires,
		`{"stream":"yes"}`:                  envelope.CodeRequires,
		`{"min_confidence":2}`:              envelope.CodeRequires,
		`{"decision_evidence":"some"}`:      envelope.CodeRequires,
		`{"human_approval":true}`:           envelope.CodeRequires,
		`{"human_approval":false}`:          "",
		`{"x-unknown":{"deep":[1]}}`:        "",
		`{"timeout_ms":null,"stream":null}`: "",
		`{"decision_evidence":"none"}`:      "",
		`{"decision_evidence":"full"}`:      "",
	} {
		got := r.request(requiring(newTask(reviewer, "code.review", full), requires))
		if want == "" {
			equal(t, requires, got.Type, envelope.TypeResult)
		} else {
			equal(t, requires, errorOf(t, got).Code, want)
		}
	}
	equal(t, "evidence that is not there", errorOf(t, r.request(requiring(newTask(reviewer, "code.review", `{}`), `{"decision_evidence":"minimal"}`))).Code, envelope.CodeOutputSchema)
}

func TestStrangersFetchNothingByIdWhereSendersAreProven(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	adas, bobs := k.signer("ada", sign.HS256, ada), k.signer("bob", sign.HS256, "human.bob")
	r := newRig(t)
	v := k.verifier()
	v.Mode = sign.Required
	r.serve(r.node(mesh.Config{Verifier: v}), mesh.Agent{Handler: echo})
	task := signed(t, adas, newTask(reviewer, "code.review", `{"secret":true}`))
	r.request(task)
	hash, err := task.Hash()
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(s *sign.Signer, from, payload string) string {
		e := newTask(reviewer, intents.ContextFetch, payload)
		e.From = from
		return string(r.request(signed(t, s, e)).Payload)
	}
	byID := fmt.Sprintf(`{"id":%q}`, task.ID)
	equal(t, "a stranger", fetch(bobs, "human.bob", byID), `{"found":false}`)
	for name, got := range map[string]string{
		"a party":             fetch(adas, ada, byID),
		"who knows the hash":  fetch(bobs, "human.bob", fmt.Sprintf(`{"id":%q,"hash":%q}`, task.ID, hash)),
		"a party, once again": fetch(adas, ada, byID),
	} {
		equal(t, name, strings.Contains(got, `"found":true`), true)
	}
}

func TestAnotherEnvelopeWithAKnownIdDoesNotHideTheFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{"first":true}`)
	r.request(task)
	other := newTask(reviewer, "code.review", `{"first":false}`)
	other.ID, other.From = task.ID, "human.mallory"
	r.request(other)
	equal(t, "found", strings.Contains(r.result(intents.ContextFetch, fmt.Sprintf(`{"id":%q}`, task.ID)), `"first":true`), true)
}

// AEE, "Reserved Namespace": applications MUST NOT use aee.*. An agent refuses the names that the draft
// does not define. Channels and people cannot, so a node sends them none, nor any event of that name.
func TestReservedNamesAreNotSentToChannelsAndPeople(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node := r.node(mesh.Config{Entity: "human.ada"})
	sent := r.listen("bus.ops")
	of := func(kind envelope.Type, to, intent string) *envelope.Envelope {
		return envelope.New(kind, "human.ada", to, intent, json.RawMessage(`{}`))
	}
	for name, send := range map[string]func() error{
		"event to a channel":  func() error { return node.Post(t.Context(), of(envelope.TypeEvent, "bus.ops", "aee.mine.done")) },
		"event to a person":   func() error { return node.Post(t.Context(), of(envelope.TypeEvent, "human.bob", "AEE.mine.done")) },
		"event to an agent":   func() error { return node.Post(t.Context(), of(envelope.TypeEvent, reviewer, "aee.mine.done")) },
		"event in CBOR":       func() error { return node.PostCBOR(t.Context(), of(envelope.TypeEvent, "bus.ops", "aee.mine.done")) },
		"task to a person":    func() error { return node.Post(t.Context(), of(envelope.TypeTask, "human.bob", "aee.mine")) },
		"broadcast":           func() error { return node.Broadcast("ops", "aee.mine.done", "", json.RawMessage(`{}`)) },
		"broadcast of a ping": func() error { return node.Broadcast("ops", intents.StatusPing, "", json.RawMessage(`{}`)) },
	} {
		if err := send(); !errors.Is(err, &envelope.Error{Code: envelope.CodeIntentReserved}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := node.Broadcast("ops", "aeex.mine", "", json.RawMessage(`{}`)); err != nil {
		t.Error(err)
	}
	first, err := envelope.Parse(within(t, "an event", sent).Data)
	if err != nil || first.Intent != "aeex.mine" {
		t.Errorf("sent %v, %v", first, err)
	}
}

// The call of a handler to a person is refused like any other envelope, on both lanes. The person
// would not see it, and the run would wait for an answer.
func TestAHandlerSendsPeopleNoReservedNamesAndNoLongOnes(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		var in struct{ Intent string }
		if err := json.Unmarshal(task.Envelope.Payload, &in); err != nil {
			return nil, err
		}
		_, err := task.Call(ctx, mesh.Call{To: bob, Key: "ask", Intent: in.Intent, Payload: json.RawMessage(`{}`), Timeout: time.Second})
		return nil, err
	})})
	client := r.client()
	for intent, code := range map[string]envelope.Code{"aee.mine": envelope.CodeIntentReserved, "code." + strings.Repeat("b", 1100): envelope.CodeTooLarge} {
		for _, durable := range []bool{false, true} {
			task, err := newTask(reviewer, "code.review", `{"intent":"`+intent+`"}`), error(nil)
			if durable {
				_, _, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
			} else {
				_, err = client.Send(ctxFor(t), task, mesh.SendOptions{})
			}
			if !isCode(err, code) {
				t.Errorf("durable %v, intent of %d bytes: %v", durable, len(intent), err)
			}
		}
	}
	if asks, err := client.PersonTasks(ctxFor(t), bob); err != nil || len(asks) > 0 {
		t.Errorf("the inbox has %d tasks, %v", len(asks), err)
	}
}

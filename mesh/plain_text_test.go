package mesh_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

func (r *rig) ask(text string, header nats.Header) *nats.Msg {
	r.t.Helper()
	return r.requestRaw("aee.ask."+reviewer, []byte(text), header)
}

func TestAskTakesTextAndGivesText(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	g.open()
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: g})
	for _, text := range []string{"hello", "", "é\x00\"\\\n", `{"looks":"like json"}`, strings.Repeat("x", 900<<10)} {
		answer := r.ask(text, nil)
		equal(t, "answer", string(answer.Data), text)
		equal(t, "header", len(answer.Header), 0)
		task := within(t, "the task", g.entered).Envelope
		want := newTask(reviewer, intents.AgentAsk, "")
		want.From, want.Payload = "human.unknown", append(envelope.AppendString([]byte(`{"text":`), text), '}')
		want.Corr = task.Corr
		same(t, task, want)
	}
	r.ask("hello", nats.Header{mesh.HeaderFrom: {ada}})
	equal(t, "from", within(t, "the task", g.entered).Envelope.From, ada)
}

func TestAskAnswersWithJSONWhereThereIsMoreThanText(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"text":"hi"}`:      "hi",
		`{"text":1}`:         `{"text":1}`,
		`{"a":"b"}`:          `{"a":"b"}`,
		`{}`:                 `{}`,
		`{"text":"a","b":1}`: `{"text":"a","b":1}`,
	} {
		r := newRig(t)
		r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			if err := task.EmitText("not for plain text"); err != nil {
				return nil, err
			}
			return json.RawMessage(payload), nil
		})})
		equal(t, payload, string(r.ask("x", nil).Data), want)
	}
}

func TestAskTakesJSONForAgentsWithASchema(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Intents: reviewIntents(t), DefaultIntent: "code.review", Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		return json.RawMessage(`{"ok":true}`), nil
	})})
	equal(t, "json", string(r.ask(`{"path":"x"}`, nil).Data), `{"ok":true}`)
	for _, bad := range []string{`{"path":1}`, "plain", `{"path":`, `{"path":"x","path":"y"}`} {
		answer := r.ask(bad, nil)
		equal(t, bad, answer.Header.Get("Nats-Service-Error-Code"), "E_INPUT_SCHEMA")
		if !strings.HasPrefix(string(answer.Data), "error: E_INPUT_SCHEMA: ") {
			t.Errorf("%s: %s", bad, answer.Data)
		}
	}
}

func TestAskErrorsAreOneLineAndHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: failing(envelope.Errorf("E_MINE", "no luck"))})
	answer := r.ask("x", nil)
	equal(t, "text", string(answer.Data), "error: E_MINE: no luck")
	equal(t, "header", answer.Header, nats.Header{"Nats-Service-Error": {"no luck"}, "Nats-Service-Error-Code": {"E_MINE"}})
	equal(t, "no UTF-8", r.ask("\xff", nil).Header.Get("Nats-Service-Error-Code"), "E_ENCODING")
	for _, from := range []string{"\xff", strings.Repeat("x", 2000), "not an entity", "agent.*"} {
		equal(t, from[:1], r.ask("x", nats.Header{mesh.HeaderFrom: {from}}).Header.Get("Nats-Service-Error-Code"), "E_INVALID_ENVELOPE")
	}
	client := r.node(mesh.Config{})
	if _, err := client.Ask(t.Context(), reviewer, "x"); codeOf(err) != "E_MINE" || err.Error() != "E_MINE: no luck" {
		t.Errorf("Ask: %v", err)
	}
	if _, err := client.Ask(t.Context(), "agent.nobody", "x"); codeOf(err) != envelope.CodeNoResponders {
		t.Errorf("Ask nobody: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	r.listen("aee.ask.agent.silent")
	if _, err := client.Ask(ctx, "agent.silent", "x"); codeOf(err) != envelope.CodeTimeout {
		t.Errorf("Ask the silent: %v", err)
	}
}

func TestAskWithoutReplySubjectIsDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	g.open()
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: g})
	r.nc.Publish("aee.ask."+reviewer, []byte("x"))
	r.ask("y", nil)
	equal(t, "ran", string(within(t, "a task", g.entered).Envelope.Payload), `{"text":"y"}`)
	equal(t, "dropped", r.counters(reviewer)["dropped"], 1)
}

func TestAskIsBusyAndDrainsLikeAnyTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	w := r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: g, Queue: 1})
	a := r.send(newTask(reviewer, "code.review", `{}`))
	within(t, "the first", g.entered)
	inbox := r.nc.NewInbox()
	answers := r.listen(inbox)
	r.nc.PublishRequest("aee.ask."+reviewer, inbox, []byte("waits"))
	eventually(t, "it waits", func() bool { return r.counters(reviewer)["queued"] == 1 })
	equal(t, "busy", r.ask("x", nil).Header.Get("Nats-Service-Error-Code"), "E_BUSY")
	w.stop()
	equal(t, "draining", within(t, "handed back", answers).Header.Get("Nats-Service-Error-Code"), "E_DRAINING")
	g.open()
	within(t, "the result", a)
}

// An answer in plain text has no signature. A sender that requires one does not ask in plain text.
func TestAskIsNotForSendersThatRequireSignatures(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	asked := r.listen("aee.ask.>")
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	client := r.node(mesh.Config{Verifier: sign.Verifier{Mode: sign.Required}})
	answer, err := client.Ask(ctxFor(t), reviewer, "hello")
	if codeOf(err) != envelope.CodeSigRequired || answer != "" {
		t.Errorf("%q, %v", answer, err)
	}
	settle(t, r.nc)
	empty(t, "questions", asked)
}

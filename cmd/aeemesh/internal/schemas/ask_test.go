package schemas

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A model of the environment is for agents that publish templates. That an agent publishes none
// is known only if it says so: while it does not, no text is sent in place of what fills a template.
func TestAModelOfTheEnvironmentIsForAgentsWithTemplates(t *testing.T) {
	t.Parallel()
	refusal := func(e *envelope.Error) any { return e }
	for name, c := range map[string]struct {
		durable bool
		answers map[string]any // to an intent; nil: no worker
		want    bool
		code    envelope.Code // "": no error
	}{
		"templates":               {answers: map[string]any{intents.CapabilityList: intents.CapabilityListResult{Scenarios: []string{"tram"}}, intents.SchemaList: map[string]any{"scenarios": []any{}}}, want: true},
		"no templates":            {answers: map[string]any{intents.CapabilityList: intents.CapabilityListResult{}}},
		"no templates, durable":   {durable: true, answers: map[string]any{intents.CapabilityList: intents.CapabilityListResult{}}, want: true},
		"it takes it for a task":  {answers: map[string]any{intents.CapabilityList: refusal(envelope.Errorf(envelope.CodeInputSchema, "no text"))}},
		"it knows no such intent": {answers: map[string]any{intents.CapabilityList: refusal(envelope.Errorf(envelope.CodeIntentUnknown, "what?"))}},
		"too many questions":      {answers: map[string]any{intents.CapabilityList: refusal(envelope.Errorf(envelope.CodeRateLimited, "later"))}, code: envelope.CodeRateLimited},
		"no worker":               {code: envelope.CodeNoResponders},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, natsd.Config{})
			agent := natstest.Conn(t, srv)
			if c.answers != nil {
				if _, err := agent.Subscribe("agent.x", func(m *nats.Msg) { answer(t, m, c.answers) }); err != nil {
					t.Fatal(err)
				}
			}
			if err := agent.Flush(); err != nil {
				t.Fatal(err)
			}
			conn := natstest.Conn(t, srv)
			node, err := mesh.New(conn, mesh.Config{Entity: "human.ada", DefaultTimeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			f := Filling{Model: "builtin/filler", Durable: c.durable}
			s := &session.Session{App: &session.App{ByEnv: map[string]bool{"model": true}}, Conn: conn, Node: node}
			got, err := f.Wanted(t.Context(), s, "agent.x")
			if code := outcome.Of(err).Code; got != c.want || code != c.code {
				t.Errorf("%t, %v, want %t, %q", got, err, c.want, c.code)
			}
		})
	}
}

// answer answers a task as an agent of another program would.
func answer(t *testing.T, m *nats.Msg, answers map[string]any) {
	task, err := envelope.Parse(m.Data)
	if err != nil {
		t.Error(err)
		return
	}
	said := answers[task.Intent]
	payload, err := json.Marshal(said)
	if err != nil {
		t.Error(err)
		return
	}
	reply := task.Reply(envelope.TypeResult, payload)
	if _, failed := said.(*envelope.Error); failed {
		reply = task.Reply(envelope.TypeError, payload)
	}
	data, err := reply.AppendJSON(nil)
	if err == nil {
		err = m.Respond(data)
	}
	if err != nil {
		t.Error(err)
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// What an agent says of a failure is held against its intent's error schema as
// its results are against theirs. The caller hears of the failure all the same,
// and whether the task may be sent again.
func TestErrorsOfAgentsAreHeldAgainstTheirSchema(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	known := intents.NewRegistry()
	if err := known.Register(intents.Definition{Intent: "bank.pay", Error: json.RawMessage(`{
		"required": ["account"], "properties": {"code": {"enum": ["NO_FUNDS", "LATER"]}, "account": {"type": "string"}}}`)}); err != nil {
		t.Fatal(err)
	}
	account := []envelope.Member{{Name: "account", Value: json.RawMessage(`"a-7"`)}}
	said := map[string]error{
		"fits":        &envelope.Error{Code: "NO_FUNDS", Message: "no money", Details: account},
		"wrong code":  &envelope.Error{Code: "BROKE", Message: "no money", Details: account},
		"no account":  &envelope.Error{Code: "LATER", Message: "not now", Retryable: true, BackoffMS: 1, Details: []envelope.Member{{Name: "secret", Value: json.RawMessage(`"hunter2"`)}}},
		"no code":     &envelope.Error{Code: envelope.CodeAgent, Message: "no luck", Details: account},
		"the mesh's":  envelope.Errorf(envelope.CodeTool, "the bank does not answer"),
		"plain error": errors.New("hunter2"),
	}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Intents: known, DefaultIntent: "bank.pay", Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		var what struct{ Say string }
		if err := json.Unmarshal(task.Envelope.Payload, &what); err != nil {
			return nil, err
		}
		return nil, said[what.Say]
	})})
	client := r.client()
	for _, c := range []struct {
		say  string
		code envelope.Code
		told []string // what the message has
		may  bool     // retryable
	}{
		{"fits", "NO_FUNDS", []string{"no money"}, false},
		{"wrong code", envelope.CodeOutputSchema, []string{"/code", "BROKE", "no money"}, false},
		{"no account", envelope.CodeOutputSchema, []string{"account", "LATER", "not now"}, true},
		{"no code", envelope.CodeOutputSchema, []string{"/code", "E_AGENT", "no luck"}, false},
		{"the mesh's", envelope.CodeTool, []string{"the bank does not answer"}, false},
		{"plain error", envelope.CodeInternal, nil, false},
	} {
		for _, intent := range []string{"bank.pay", "as.default"} {
			for lane, send := range map[string]func(*envelope.Envelope) error{
				"live": func(e *envelope.Envelope) error { _, err := client.Send(ctxFor(t), e, mesh.SendOptions{}); return err },
				"durable": func(e *envelope.Envelope) error {
					r.submit(client, e)
					_, err := r.result(client, e)
					return err
				},
			} {
				err := send(newTask(reviewer, intent, `{"say":"`+c.say+`"}`))
				var got *envelope.Error
				if !errors.As(err, &got) || got.Code != c.code || got.Retryable != c.may || c.may != (got.BackoffMS > 0) {
					t.Errorf("%s, %s, %s: %v, want %s, retryable %t", c.say, intent, lane, err, c.code, c.may)
					continue
				}
				for _, part := range c.told {
					if !strings.Contains(got.Message, part) {
						t.Errorf("%s, %s, %s: no %s in %q", c.say, intent, lane, part, got.Message)
					}
				}
				if strings.Contains(string(got.Payload()), "hunter2") {
					t.Errorf("%s, %s, %s: %s", c.say, intent, lane, got.Payload())
				}
			}
		}
	}
}

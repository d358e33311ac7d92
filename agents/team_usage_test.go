package agents

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A condition of a member reads the usage of the model that leads the team, while further calls of
// the same turn begin and are counted. The race detector watches.
func TestTheUsageOfALeadingModelIsReadWhileCallsBegin(t *testing.T) {
	t.Parallel()
	var m *agentModel
	third := make(chan struct{})
	used := make(chan orchestrate.Usage, 1)
	reg := new(tool.Registry)
	err := reg.Add(tool.Raw(tool.Definition{Name: "ask", Description: "Asks."}, func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
		switch string(args) {
		case `{"n":2}`:
			used <- m.Used()
			select {
			case <-third:
			case <-ctx.Done():
			}
		case `{"n":3}`:
			close(third)
		}
		return json.RawMessage(`{}`), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","agent":{"name":"Boss","goal":"Lead.","tools":[{"name":"ask","description":"Asks."}]}}`), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	var calls []model.ToolCall
	for _, n := range []string{"1", "2", "3"} {
		calls = append(calls, model.ToolCall{ID: n, Name: "ask", Arguments: json.RawMessage(`{"n":` + n + `}`)})
	}
	fake := modeltest.New(modeltest.Turn{Calls: calls, Usage: model.Usage{InputTokens: 7, OutputTokens: 1}}, modeltest.Turn{Text: "done"})
	a, err := New(doc, Options{Model: fake, Tools: reg, ParallelTools: 2})
	if err != nil {
		t.Fatal(err)
	}
	task := &mesh.Task{Envelope: envelope.New(envelope.TypeTask, "human.ada", a.Entity, "test.run", json.RawMessage(`{"text":"go"}`))}
	m = newAgentModel(a.Handler.(*loop), task)
	if payload, err := m.Work(t.Context(), task.Envelope.Payload); err != nil {
		t.Fatalf("%s, %v", payload, err)
	}
	if u := <-used; u.InputTokens != 7 || m.r.usage.ToolCalls != 3 {
		t.Errorf("usage %+v, %d calls", u, m.r.usage.ToolCalls)
	}
}

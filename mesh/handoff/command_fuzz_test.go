package handoff

import (
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// Whatever a source sends as a command, what the entity gets of it names the run of the
// handoff, and nothing else.
func FuzzCommand(f *testing.F) {
	const run = "22222222-2222-4222-8222-222222222222"
	h := &record{id: "h", c: &state.Checkpoint{Doc: aaif.State{RunID: run}, Mesh: state.Mesh{Entity: "agent.x", Migration: &state.Migration{ID: "h", Issuer: "agent.x"}}}}
	for intent, payload := range map[string]string{
		intents.TaskCancel: `{"run":"` + run + `","reason":"enough"}`, intents.TaskPause: `{"run":"` + run + `","ID":"other-task"}`,
		intents.TaskMigrate: `{"run":"` + run + `","to":"any"}`, intents.TaskSettle: `{"run":"` + run + `","outcome":"done","result":{"n":1e3}}`,
	} {
		raw, err := envelope.New(envelope.TypeTask, "agent.x", "agent.x", intent, json.RawMessage(payload)).AppendJSON(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := h.command(raw)
		if err != nil {
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(e.Payload, &members); err != nil {
			t.Fatal(err)
		}
		var named struct{ ID, Run, Corr, To string }
		if err := json.Unmarshal(e.Payload, &named); err != nil && named.Run == "" {
			t.Fatal(err)
		}
		if named.Run != run || named.ID != "" || named.Corr != "" || named.To != "" || e.Intent == intents.TaskMigrate || e.To != "agent.x" || e.From != "agent.x" || e.Requires != nil {
			t.Errorf("%s became %+v", raw, e)
		}
		if _, err := e.AppendJSON(nil); err != nil {
			t.Errorf("it cannot be sent on: %v", err)
		}
	})
}

package orchestrate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/state"
)

// A run from another platform cannot choose the agents that are called here:
// the members chosen in its plan are dropped, and references are resolved again
// (finding 9 of the security review). The rest of the plan is kept.
func TestAPlanFromAnotherPlatformChoosesNobody(t *testing.T) {
	t.Parallel()
	was := position{
		Format: positionFormat, Pattern: Pipeline, Steps: []string{"a", "b"}, Scope: "s", Calls: 2, Swarm: json.RawMessage(`{"asked":["a"]}`),
		Outcomes: []Outcome{{Slot: 0, Alias: "a", Entity: "agent.a"}},
		Chosen:   []chosen{{Key: "step/1", Entity: "agent.bank", AgentID: "11111111-1111-4111-8111-111111111111"}},
	}
	raw, err := json.Marshal(&was)
	if err != nil {
		t.Fatal(err)
	}
	c := state.New("agent.x", "01J00000000000000000000000", "")
	c.Mesh.Plan = raw
	if err := c.Inbound(time.Now()); err != nil {
		t.Fatal(err)
	}
	var is position
	if err := json.Unmarshal(c.Mesh.Plan, &is); err != nil {
		t.Fatal(err)
	}
	if len(is.Chosen) > 0 || strings.Contains(string(c.Mesh.Plan), "agent.bank") {
		t.Errorf("it says whom to ask: %s", c.Mesh.Plan)
	}
	was.Chosen = nil
	if a, b := mustJSON(was), mustJSON(is); string(a) != string(b) {
		t.Errorf("plan %s, was %s", b, a)
	}
}

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

// The time that a swarm reserves after a stage holds for one attempt: another attempt has less time
// left, and reserves a share of that. A worker that resumes an attempt reserves the same.
func TestAnotherAttemptAtASwarmReservesItsOwnTimes(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		for anew, kept := range map[bool]time.Duration{false: 23 * time.Second, true: 6 * time.Second} {
			// The attempt before had 100 s.
			w := &work{Team: New(&Plan{Pattern: Swarm}, Options{}), pos: position{Pattern: Swarm, Scope: "1"}}
			w.pos.Swarm = mustJSON(cast{Asked: []string{"a"}, Synthesizer: "b", Closed: closed, KeptMS: map[string]int64{stageMembers: 25_000, stageJudges: 25_000}})
			if anew {
				w.beginAttempt("2")
			}
			s := &swarm{work: w}
			if err := s.casting(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, stage := range []string{stageMembers, stageJudges} {
				if d := s.keep(stage, 24*time.Second, true); d != kept {
					t.Errorf("closed %v, another attempt %v: %s keeps %v of 24 s, want %v", closed, anew, stage, d, kept)
				}
			}
			if want := (cast{Asked: []string{"a"}, Synthesizer: "b", Closed: closed}); anew && string(mustJSON(s.cast)) != string(mustJSON(want)) {
				t.Errorf("the cast is %s", mustJSON(s.cast))
			}
		}
	}
}

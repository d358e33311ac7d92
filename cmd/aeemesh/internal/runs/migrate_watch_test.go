package runs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/state"
)

// A move that is over before anybody looks is told with all its phases, and
// without those of the move before it.
func TestAllPhasesOfAQuickMoveAreTold(t *testing.T) {
	t.Parallel()
	var words bytes.Buffer
	m := &movement{app: &session.App{Term: term.New(&bytes.Buffer{}, &words, func(string) string { return "" })}, runs: &Store{Store: new(state.Mem)}}
	cp := new(state.Checkpoint)
	cp.Mesh.Entity, cp.Mesh.TaskID, cp.Mesh.Format = "agent.x", "01M7Y2913ARY8YGYF39XPWG2HY", state.Format
	cp.Doc.RunID, cp.Doc.AgentID = state.RunID("agent.x", cp.Mesh.TaskID), state.AgentID("agent.x")
	cp.Doc.Status = aaif.RunRunning
	m.id = state.ID{Entity: "agent.x", Run: cp.Doc.RunID}
	revision := uint64(0)
	for _, g := range []state.Migration{
		{ID: "before", Phase: state.PhaseAsked}, {ID: "before", Phase: state.PhaseAborted},
		{ID: "now", Phase: state.PhaseAsked}, {ID: "now", Phase: state.PhaseCaptured}, {ID: "now", Phase: state.PhaseMoved, Target: "w2"},
	} {
		cp.Mesh.Migration = &g
		data, err := state.Codec{}.Encode(cp)
		if err != nil {
			t.Fatal(err)
		}
		if revision, err = m.runs.Put(t.Context(), m.id, revision, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.follow(t.Context()); err != nil || m.target != "w2" {
		t.Fatalf("target %q, %v", m.target, err)
	}
	at := 0
	for _, phase := range []state.Phase{state.PhaseAsked, state.PhaseCaptured, state.PhaseMoved} {
		i := strings.Index(words.String()[at:], phaseWords[phase])
		if i < 0 {
			t.Fatalf("%q is not told in its place:\n%s", phaseWords[phase], words.String())
		}
		at += i
	}
	if strings.Contains(words.String(), phaseWords[state.PhaseAborted]) {
		t.Errorf("the move before is told:\n%s", words.String())
	}
}

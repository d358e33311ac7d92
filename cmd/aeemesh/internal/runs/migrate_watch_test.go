package runs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/state"
)

// movementOf returns the watch of a move of a run that was moved as the records say.
func movementOf(t *testing.T, words *bytes.Buffer, to string, records ...state.Migration) *movement {
	t.Helper()
	m := &movement{app: &session.App{Term: term.New(&bytes.Buffer{}, words, func(string) string { return "" })}, runs: &Store{Store: new(state.Mem)}, to: to}
	cp := new(state.Checkpoint)
	cp.Mesh.Entity, cp.Mesh.TaskID, cp.Mesh.Format = "agent.x", "01M7Y2913ARY8YGYF39XPWG2HY", state.Format
	cp.Doc.RunID, cp.Doc.AgentID = state.RunID("agent.x", cp.Mesh.TaskID), state.AgentID("agent.x")
	cp.Doc.Status = aaif.RunRunning
	m.id = state.ID{Entity: "agent.x", Run: cp.Doc.RunID}
	revision := uint64(0)
	for _, g := range records {
		cp.Mesh.Migration = &g
		data, err := state.Codec{}.Encode(cp)
		if err != nil {
			t.Fatal(err)
		}
		if revision, err = m.runs.Put(t.Context(), m.id, revision, data); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// A move that is over before the first look is reported with all its phases, and without those of
// the move before it.
func TestAllPhasesOfAQuickMoveAreTold(t *testing.T) {
	t.Parallel()
	var words bytes.Buffer
	m := movementOf(t, &words, "any",
		state.Migration{ID: "before", Phase: state.PhaseAsked, To: "any"}, state.Migration{ID: "before", Phase: state.PhaseAborted, To: "any"},
		state.Migration{ID: "now", Phase: state.PhaseAsked, To: "any"}, state.Migration{ID: "now", Phase: state.PhaseCaptured, To: "any"}, state.Migration{ID: "now", Phase: state.PhaseMoved, To: "any", Target: "w2"})
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

// If a move was aborted and another one was requested, the command of the first fails with
// the name of the second's sender. It does not report the second move as its own.
func TestAMoveThatAnotherFollowedIsNotThatOne(t *testing.T) {
	t.Parallel()
	paris := "https://paris.example:7443"
	for _, phase := range []state.Phase{state.PhaseAborted, state.PhaseAsked} { // the end of the first one may have been missed
		var words bytes.Buffer
		m := movementOf(t, &words, "any", state.Migration{ID: "own", Phase: phase, To: "any", Detail: "by human.bob"}, state.Migration{ID: "other", Phase: state.PhaseAsked, To: paris, By: "human.bob"})
		err := m.follow(t.Context())
		if err == nil || !strings.Contains(err.Error(), "human.bob") {
			t.Errorf("after %s: %v", phase, err)
		}
	}
	var words bytes.Buffer
	m := movementOf(t, &words, "any", state.Migration{ID: "own", Phase: state.PhaseMoved, To: "any", Target: "w2"}, state.Migration{ID: "other", Phase: state.PhaseMoved, To: "w3", Target: "w3"})
	if err := m.follow(t.Context()); err != nil || m.target != "w2" {
		t.Errorf("it moved to %q, %v", m.target, err)
	}
}

// The pause of a move is known even if the document of an old record is lost: the bucket still has the
// record, as a reference.
func TestAPauseIsKnownWithoutALostDocument(t *testing.T) {
	t.Parallel()
	for lost := range 3 {
		m := movementOf(t, new(bytes.Buffer), "any", state.Migration{ID: "before", Phase: state.PhaseAborted, To: "any"}, state.Migration{ID: "now", Phase: state.PhaseAsked, To: "any"},
			state.Migration{ID: "now", Phase: state.PhaseCaptured, To: "any"}, state.Migration{ID: "now", Phase: state.PhaseMoved, To: "any", Target: "w2"})
		m.move = "now"
		history, err := m.runs.History(t.Context(), m.id)
		if err != nil {
			t.Fatal(err)
		}
		for i := range history {
			history[i].Time = time.Unix(int64(100+i), 0)
		}
		history[lost].Data = []byte(`{"object":"lost"}`)
		wantLast, wantCaptured := int64(101), int64(102)
		switch lost {
		case 1:
			wantLast = 100
		case 2:
			wantCaptured = 103
		}
		if last, captured := m.atSource(history); last.Unix() != wantLast || captured.Unix() != wantCaptured {
			t.Errorf("without record %d: %d, %d", lost, last.Unix(), captured.Unix())
		}
	}
}

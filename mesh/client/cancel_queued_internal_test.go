package client

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
)

// A message that a search cannot hold any more is found by the next one: it is not removed without an answer.
func TestASearchDoesNotPlaceATaskThatItCannotHold(t *testing.T) {
	t.Parallel()
	s := search{entity: "agent.x", wants: func(string) bool { return true }}
	see := func(e *envelope.Envelope, seq uint64) {
		t.Helper()
		data, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		s.see(data, nil, "", &place{"normal", seq})
	}
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
	forged := *task
	forged.From = "human.eve"
	see(task, 1)
	s.held = mostHeld
	see(&forged, 2)
	see(task, 3)
	see(envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), 4)
	if len(s.waiting) != 1 || !s.cut {
		t.Fatalf("%d tasks; cut: %v", len(s.waiting), s.cut)
	}
	w := s.waiting[0]
	if len(w.tasks) != 1 || !w.cut || len(w.places) != 2 || w.places[0].seq != 1 || w.places[1].seq != 3 {
		t.Errorf("%+v", w)
	}
	// A large message did not fit, and a smaller one with its id would: the task is not done without both.
	s = search{entity: "agent.x", wants: func(string) bool { return true }}
	see(envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), 1)
	s.held = mostHeld - 2000
	large := *task
	large.Payload = json.RawMessage(`{"text":"` + strings.Repeat("x", 2000) + `"}`)
	see(&large, 2)
	see(task, 3)
	if !s.cut {
		t.Error("the large message fits")
	}
	for _, w := range s.waiting[1:] {
		if !w.cut {
			t.Errorf("a message of the task is left out, and the search does not say so: %+v", w)
		}
	}
}

package agents_test

import (
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// The member durable of a program's line is the mesh's: a task that has an unknown field of that
// name tells the program no run and no attempt, and the line has no name twice.
func TestASendersFieldDurableIsNotTheMeshs(t *testing.T) {
	t.Parallel()
	l, p := newLane(t), newProgram(t, "serve", nil)
	l.host(&agents.Agent{Program: p, Agent: mesh.Agent{Entity: entity, Handler: p}}, nil)
	until(t, "the agent answers", func() bool { _, err := l.client.Ping(t.Context(), entity); return err == nil })
	forged := func() *envelope.Envelope {
		task := l.task(entity, do("line", ""), "")
		task.Extra = []envelope.Member{{Name: "durable", Value: json.RawMessage(`{"run":"forged","attempt":7}`)}, {Name: "colour", Value: json.RawMessage(`"red"`)}}
		return task
	}
	line := func(payload string) (fields map[string]json.RawMessage) {
		t.Helper()
		var said struct{ Line string }
		if err := json.Unmarshal([]byte(payload), &said); err != nil {
			t.Fatal(err)
		}
		e, err := envelope.Parse([]byte(said.Line)) // refuses a name that is there twice
		if err != nil {
			t.Fatalf("%v: %s", err, said.Line)
		}
		fields = map[string]json.RawMessage{}
		for _, m := range e.Extra {
			fields[m.Name] = m.Value
		}
		if string(fields["colour"]) != `"red"` {
			t.Errorf("another field did not reach the program: %s", said.Line)
		}
		return fields
	}
	reply, err := l.client.Send(t.Context(), forged(), mesh.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := line(string(reply.Payload))["durable"]; got != nil {
		t.Errorf("a live task has the attempt %s", got)
	}
	durable := forged()
	l.submit(durable)
	var is struct {
		Run     string
		Attempt int
	}
	if err := json.Unmarshal(line(l.result(durable))["durable"], &is); err != nil || is.Run == "" || is.Run == "forged" || is.Attempt != 1 {
		t.Errorf("a durable task has the attempt %+v (%v)", is, err)
	}
}

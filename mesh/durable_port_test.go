package mesh

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// The host of an agent without a durable lane, and a live task, ask whether there is a lane or a
// run. So the two interfaces hold nil there, and not a nil pointer.
func TestTheLiveLaneHasNoDurablePart(t *testing.T) {
	t.Parallel()
	runs := make(chan durableRun, 1)
	handler := HandlerFunc(func(_ context.Context, task *Task) (json.RawMessage, error) {
		runs <- task.run
		if (task.Run() == nil) != (task.run == nil) {
			t.Errorf("Run returns %v of %v", task.Run(), task.run)
		}
		return json.RawMessage(`{}`), nil
	})
	live, err := New(natstest.Conn(t, natstest.Run(t, natsd.Config{})), Config{})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	both, ctx := serveDurable(t, 0, Agent{Entity: "agent.reviewer", Handler: handler, Ready: func() { close(served) }})
	<-served
	for what, c := range map[string]struct {
		node *Node
		live bool
	}{"a live node": {live, false}, "a live agent": {both, true}} {
		h, err := c.node.newHost(Agent{Entity: "agent.other", Handler: handler, LiveOnly: c.live})
		if err != nil {
			t.Fatal(err)
		}
		if h.durable != nil || h.joined() != nil {
			t.Errorf("%s: its lane is %v, joined %v", what, h.durable, h.joined())
		}
		h.health() // would ask a lane
	}
	if _, err := both.newHost(Agent{Entity: "agent.other", Handler: handler, MeshConcurrency: 2}); err == nil {
		t.Error("a host without the slots that its lane needs")
	}

	d := *both.cfg.Durable
	ready := make(chan struct{})
	d.Ready = ready
	waiting, err := New(both.conn, Config{Durable: &d})
	if err != nil {
		t.Fatal(err)
	}
	h, err := waiting.newHost(Agent{Entity: "agent.other", Handler: handler})
	if err != nil {
		t.Fatal(err)
	}
	if h.durable == nil || h.joined() != nil {
		t.Errorf("before the streams exist: its lane is %v, joined %v", h.durable, h.joined())
	}
	close(ready)
	if h.joined() == nil {
		t.Error("its streams exist, and it has not joined the lane")
	}

	task := envelope.New(envelope.TypeTask, "human.ada", "agent.reviewer", "test.task", json.RawMessage(`{}`))
	if _, err := both.Send(ctx, task, SendOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := <-runs; r != nil {
		t.Errorf("the run of a live task is %v", r)
	}
	stored := envelope.New(envelope.TypeTask, "human.ada", "agent.reviewer", "test.task", json.RawMessage(`{}`))
	if _, _, err := both.Perform(ctx, stored, SubmitOptions{}, ResultOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := <-runs; r == nil || r.ID() == "" {
		t.Errorf("the run of a durable task is %v", r)
	}
}

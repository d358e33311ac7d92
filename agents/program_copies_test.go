package agents_test

import (
	"context"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A durable task whose id the program has already waits for that one's end; it was
// accepted, so E_REPLAY must not end it. Finding D4 of the reliability review.
func TestADurableTaskWaitsForTheProgramsOtherTaskOfItsID(t *testing.T) {
	t.Parallel()
	l, p := newLane(t).shortLeases(), newProgram(t, "serve", nil)
	w := l.host(&agents.Agent{Program: p, Agent: mesh.Agent{Entity: "agent.x", Handler: p, Concurrency: 3}}, nil)
	ready, served := make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); <-served })
	go func() {
		served <- w.node.Serve(ctx, mesh.Agent{Entity: "agent.y", Handler: p, Ready: func() { close(ready) }})
	}()
	<-ready

	held := l.task("agent.x", do("hold", ""), `{"stream":true}`)
	l.submit(held)
	until(t, "the program has it", func() bool { return p.Health().Details["in_flight"] == 1 })
	same := l.task("agent.y", do("echo", "after it"), "")
	same.ID = held.ID
	l.submit(same)
	sub, err := l.conn.SubscribeSync("$JS.ACK.AEE_WORK.normal-agent=2Ey.>") // it is leased, so the worker has it
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := sub.NextMsg(patience); err != nil {
			t.Fatal(err)
		}
	}
	release := l.task("agent.x", do("release", ""), "")
	l.submit(release)
	for task, want := range map[*envelope.Envelope]string{held: `{"text":"held 0"}`, same: `{"text":"after it"}`, release: `{"text":"released"}`} {
		if got := l.result(task); got != want {
			t.Errorf("%s: %s, want %s", task.To, got, want)
		}
	}
}

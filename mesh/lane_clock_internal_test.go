package mesh

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Otherwise its deadline, which is final, is by the worker's own clock, which may be wrong.
func TestNoTaskIsDrawnBeforeTheServersClockIsRead(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	outage := natstest.NewOutage(t, srv)
	reads := "STREAM.INFO." + jetstream.StreamWork
	known := make(chan bool, 1)
	node, ctx := serveDurableOn(t, outage.JetStream(t, natstest.Conn(t, srv)), 0, Agent{Entity: "agent.x", Handler: HandlerFunc(func(_ context.Context, task *Task) (json.RawMessage, error) {
		known <- task.Run().lane.clock.last.Load() != nil
		return nil, nil
	})}, func(*Config) { outage.RefuseFirst(1, reads) }) // after the streams were made
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", nil)
	if _, err := node.Submit(ctx, task, client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case ok := <-known:
		if !ok || outage.RefusedOf(reads) != 1 {
			t.Errorf("the task began, and the clock was read: %v, refused %d times", ok, outage.RefusedOf(reads))
		}
	case <-ctx.Done():
		t.Fatal("the task did not begin")
	}
}

package mesh

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A worker owns a run, and nothing in it is at work on the run. It lets the lease on the
// run's message end, and takes the redelivered message for a claim, so that the run goes
// on, although its owner lives and there is no other worker. Finding D6 of the reliability
// review: such a run stood still for as long as its owner lived.
func TestALeaseIsNotRenewedWithoutWork(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	begun := make(chan *Run, 10)
	handler := HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
		run := task.Run()
		if err := run.Claim(ctx); err != nil {
			return nil, err
		}
		begun <- run
		if run.Epoch() == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return json.RawMessage(`{"went":"on"}`), nil
	})
	node, ctx := serveDurable(t, 600*time.Millisecond, Agent{Entity: "agent.x", Handler: handler, Concurrency: 2})
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
	if _, err := node.Submit(ctx, task, client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case run := <-begun:
		run.tally.add(-1) // as if its handler had gone without a trace
	case <-ctx.Done():
		t.Fatal("the task did not begin")
	}
	reply, err := node.Result(ctx, task.To, task.ID, client.ResultOptions{Follow: true})
	if err != nil || string(reply.Payload) != `{"went":"on"}` {
		t.Errorf("%+v, %v", reply, err)
	}
	if n := len(begun); n != 1 {
		t.Errorf("the handler began %d times more", n)
	}
}

package mesh

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// The server's clock is known the better the longer a worker runs. Where it turns
// out to be behind what the worker thought, its timer goes off too early.
func TestARunWaitsForItsTimeThoughTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	lanes := make(chan *lane, 1)
	handler := HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
		run := task.Run()
		if run.View().Mesh.Plan != nil {
			return json.RawMessage(`{"woken":true}`), nil
		}
		lanes <- run.lane
		return nil, run.ParkUntil(ctx, Wake{At: run.lane.clock.now().Add(3 * time.Second)}, func(c *state.Checkpoint) error {
			c.Mesh.Plan = json.RawMessage(`{}`)
			return nil
		})
	})
	node, ctx := serveDurable(t, 0, Agent{Entity: "agent.sleeper", Handler: handler})
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.sleeper", "x.y.z", json.RawMessage(`{}`))
	if _, err := node.Submit(ctx, task, client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	var l *lane
	select {
	case l = <-lanes:
	case <-ctx.Done():
		t.Fatal("the task did not begin")
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for known := false; !known; <-tick.C {
		known = l.waits.Len() == 1
		if ctx.Err() != nil {
			t.Fatal("the run is not known to wait")
		}
	}
	l.clock.last.Store(&reading{l.clock.now().Add(-300 * time.Millisecond), time.Now(), 0})
	reply, err := node.Result(ctx, task.To, task.ID, client.ResultOptions{Follow: true})
	if err != nil || string(reply.Payload) != `{"woken":true}` {
		t.Errorf("%+v, %v", reply, err)
	}
}

// Otherwise a task that was stored just now took less than no time.
func TestWhatTheServerHasStoredIsPast(t *testing.T) {
	t.Parallel()
	var c serverClock
	now := time.Now()
	c.last.Store(&reading{now.Add(-time.Second), now, 0}) // it seems to be a second behind
	if got := c.past(now); got.After(time.Now()) {
		t.Errorf("what is stored now is due in %v", time.Until(got))
	}
	if got, want := c.past(now.Add(-time.Hour)), now.Add(time.Second-time.Hour); got.Sub(want).Abs() > time.Minute {
		t.Errorf("what was stored an hour ago is of %v, want %v", got, want)
	}
}

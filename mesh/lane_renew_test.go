package mesh

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A worker owns a run, and nothing in it is at work on the run. It lets the lease on the
// run's message end, and takes the redelivered message for a claim, so that the run goes
// on, although its owner lives and there is no other worker. Finding D6 of the reliability
// review: such a run stood still for as long as its owner lived.
func TestALeaseIsNotRenewedWithoutWork(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	nc := natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true}))
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	m := subject.Map{}
	node, err := New(nc, Config{Entity: "human.ada", Heartbeat: -1, Durable: &Durable{
		Queue: jetstream.NewQueue(js, m), Replies: jetstream.NewReplies(js, m), Dead: jetstream.NewDead(js, m),
		States: jetstream.NewStates(js, m), Clock: jetstream.NewClock(js, m), Create: true, Sweep: -1, Lease: 600 * time.Millisecond,
	}})
	if err != nil {
		t.Fatal(err)
	}
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	served := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	go func() { served <- node.Serve(serving, Agent{Entity: "agent.x", Handler: handler, Concurrency: 2}) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		cancel()
	}()
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
	if _, err := node.Submit(ctx, task, SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case run := <-begun:
		run.tally.add(-1) // as if its handler had gone without a trace
	case <-ctx.Done():
		t.Fatal("the task did not begin")
	}
	reply, err := node.Result(ctx, task.To, task.ID, ResultOptions{Follow: true})
	if err != nil || string(reply.Payload) != `{"went":"on"}` {
		t.Errorf("%+v, %v", reply, err)
	}
	if n := len(begun); n != 1 {
		t.Errorf("the handler began %d times more", n)
	}
}

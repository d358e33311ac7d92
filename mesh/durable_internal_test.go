package mesh

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// serveDurable serves an agent with the durable lane until the test ends, on a NATS server of
// its own. lease 0: the default. The returned context ends with the test, or after a minute.
func serveDurable(t *testing.T, lease time.Duration, agent Agent, change ...func(*Config)) (*Node, context.Context) {
	t.Helper()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err != nil {
		t.Fatal(err)
	}
	return serveDurableOn(t, js, lease, agent, change...)
}

// serveDurableOn is serveDurable on a JetStream without streams.
func serveDurableOn(t *testing.T, js natsjs.JetStream, lease time.Duration, agent Agent, change ...func(*Config)) (*Node, context.Context) {
	t.Helper()
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	m := subject.Map{}
	cfg := Config{Entity: "human.ada", Heartbeat: -1, Durable: &Durable{
		Queue: jetstream.NewQueue(js, m), Replies: jetstream.NewReplies(js, m), Dead: jetstream.NewDead(js, m),
		States: jetstream.NewStates(js, m), Clock: jetstream.NewClock(js, m), Create: true, Sweep: -1, Lease: lease,
	}}
	for _, f := range change {
		f(&cfg)
	}
	n, err := New(js.Conn(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	served := make(chan error, 1)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() { served <- n.Serve(serving, agent) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		cancel()
	})
	return n, ctx
}

// A command for a delegated task is said to be noted only if it is in the receiver's queue: the
// worker that forwards it may have to stop before that.
func TestAForwardedCommandIsNotedWhenItIsQueued(t *testing.T) {
	t.Parallel()
	lanes := make(chan *lane, 1)
	node, ctx := serveDurable(t, 0, Agent{Entity: "agent.a", Handler: HandlerFunc(func(_ context.Context, task *Task) (json.RawMessage, error) {
		lanes <- task.Run().lane
		return nil, nil
	})})
	if _, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.a", "x.y.z", nil), client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	l := <-lanes
	c := state.New("agent.a", "task-0001", "")
	c.Mesh.Owner, c.Mesh.Handed = l.host.id, &state.Handed{To: "agent.b", TaskID: "task-0002"}
	forward := func(ctx context.Context) orders.Outcome {
		return l.commands.forwardOrder(ctx, c, &orders.Order{Order: run.Order{Envelope: envelope.NewID(), Intent: intents.TaskCancel}}, false)
	}
	queued := func() (n int) {
		for _, err := range node.cfg.Durable.Queue.Peek(ctx, "urgent", "agent.b", 0) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}

	brief, cancel := context.WithCancel(ctx)
	defer cancel()
	worker, err := node.conn.Subscribe("aee.ctl.agent.b", func(*nats.Msg) { cancel() }) // and does not answer
	if err != nil {
		t.Fatal(err)
	}
	if out := forward(brief); out.Done || out.Refused == nil || out.Refused.Code != envelope.CodeUnavailable || queued() != 0 {
		t.Errorf("stopped while a worker may answer: %+v, and %d commands are queued", out, queued())
	}

	if err := worker.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "a command that no worker gets is noted", func() bool { // a busy machine may queue none in a second
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		out := forward(brief)
		return out.Done && out.Status == "noted"
	})
	if queued() == 0 {
		t.Error("a command is said to be noted, and is not in the queue")
	}
}

// HoldersWatched is how many workers a node watches that have its live tasks; -1: nothing
// runs to watch any.
func HoldersWatched(n *Node) int { return n.holders.Watched() }

// RunsWatched is how many parked runs a node watches.
func RunsWatched(n *Node) (watched int) {
	for _, h := range n.hosts.all() {
		watched += h.durable.(*lane).waits.Len()
	}
	return watched
}

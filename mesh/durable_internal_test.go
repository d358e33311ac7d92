package mesh

import (
	"context"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// serveDurable serves an agent with the durable lane until the test ends, on a NATS server of
// its own. lease 0: the default. The returned context ends with the test, or after a minute.
func serveDurable(t *testing.T, lease time.Duration, agent Agent, change ...func(*Config)) (*Node, context.Context) {
	t.Helper()
	nc := natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true}))
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
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
	n, err := New(nc, cfg)
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

// HoldersWatched is how many workers a node watches that have its live tasks; -1: nothing
// runs to watch any.
func HoldersWatched(n *Node) int { return n.holders.Watched() }

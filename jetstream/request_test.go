package jetstream_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// A request whose answer is lost must fail before its caller's deadline, which is that of
// a task: otherwise the run would hang for as long. The cluster soak found such a run;
// finding D6 of the reliability review is a similar one.
func TestALostAnswerDoesNotTakeTheTimeOfATask(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	nc := natstest.Conn(t, srv)
	silent, err := nc.SubscribeSync("lost.>") // receives requests, and answers none
	if err != nil {
		t.Fatal(err)
	}
	js, err := natsjs.NewWithAPIPrefix(nc, "lost")
	if err != nil {
		t.Fatal(err)
	}
	agents := jetstream.NewAgents(js, subject.Map{})
	for name, ask := range map[string]func(context.Context) error{
		"a record": func(ctx context.Context) error {
			_, err := jetstream.NewStates(js, subject.Map{}).Get(ctx, state.ID{Entity: "agent.x", Run: state.RunID("agent.x", "1")})
			return err
		},
		"a publish": func(ctx context.Context) error {
			_, err := jetstream.Gather(js).PublishMsg(ctx, &nats.Msg{Subject: "lost.publish", Data: []byte("x")})
			return err
		},
		"a bucket": func(ctx context.Context) error {
			_, err := agents.Get(ctx, "agent.x")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				t.Errorf("%v, and the caller's time is over: %v", err, ctx.Err())
			}
		})
	}
	t.Cleanup(func() { _ = silent.Unsubscribe() })
}

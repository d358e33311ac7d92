package mesh

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
)

// The message of a failed task comes again after the pause of its retry. A worker that finds, when
// its handler fails, that another one has the run says nothing of the message, which is that one's.
func TestTheMessageOfATaskThatIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"its own": false, "another's": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, fail := make(chan *Run, 10), make(chan struct{})
			agent := Agent{Entity: "agent.x", Retry: RetryPolicy{Max: 9, Base: time.Hour, Cap: time.Hour}, Handler: HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
				if err := task.Run().Claim(ctx); err != nil {
					return nil, err
				}
				begun <- task.Run()
				<-fail
				return nil, envelope.Errorf(envelope.CodeUnavailable, "not now")
			})}
			node, ctx := serveDurable(t, time.Minute, agent)
			if _, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{}); err != nil {
				t.Fatal(err)
			}
			r := <-begun
			acks := make(chan *nats.Msg, 100)
			sub, err := node.conn.ChanSubscribe("$JS.ACK."+jetstream.StreamWork+".>", acks)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe()
			if lost {
				rec, err := r.lane.cfg.States.Get(ctx, r.id)
				if err == nil {
					err = claimedBy(ctx, r.lane.cfg.States, rec, "another")
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			close(fail)
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for (r.ended() == nil || r.lane.finishing.Load() > 0) && ctx.Err() == nil {
				<-tick.C
			}
			if err := node.conn.FlushWithContext(ctx); err != nil {
				t.Fatal(err)
			}
			said := ""
			for len(acks) > 0 {
				if verb := string((<-acks).Data); !strings.HasPrefix(verb, "+WPI") {
					said += verb
				}
			}
			if lost && said != "" || !lost && !strings.HasPrefix(said, "-NAK {") {
				t.Errorf("of the message it says %q", said)
			}
		})
	}
}

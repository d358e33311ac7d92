package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// swept returns how many messages a sweep queues for a run, whatever its age.
func swept(ctx context.Context, l *lane, id state.ID) (queued int, err error) {
	rec, err := l.cfg.States.Get(ctx, id)
	if err != nil {
		return 0, err
	}
	s := l.sweep()
	s.settled = -time.Hour
	err = s.run(ctx, rec)
	return s.queued, err
}

// A worker that executes a run ends it, also if its message is gone from the queue. Its own sweep
// queues no second one.
func TestTheSweepLeavesTheWorkersOwnRunsAlone(t *testing.T) {
	t.Parallel()
	begun, over := make(chan *Run, 10), make(chan struct{})
	defer close(over)
	node, ctx := serveDurable(t, time.Minute, Agent{Entity: "agent.x", Handler: HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
		if err := task.Run().Claim(ctx); err != nil {
			return nil, err
		}
		begun <- task.Run()
		<-over
		return json.RawMessage(`{}`), nil
	})})
	receipt, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := <-begun
	js, err := natsjs.New(node.conn)
	if err != nil {
		t.Fatal(err)
	}
	work, err := js.Stream(ctx, jetstream.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	if err := work.DeleteMsg(ctx, receipt.Seq); err != nil {
		t.Fatal(err)
	}
	if n, err := swept(ctx, r.lane, r.id); n != 0 || err != nil {
		t.Errorf("the sweep has queued %d, %v", n, err)
	}
}

// A task that is tried again later has no owner, and its message waits in the queue until then:
// the sweep queues none that would come before its time.
func TestTheSweepLeavesATaskThatIsTriedAgainLaterAlone(t *testing.T) {
	t.Parallel()
	begun := make(chan *Run, 10)
	agent := Agent{Entity: "agent.x", Retry: RetryPolicy{Max: 1, Base: time.Hour, Cap: time.Hour}, Handler: HandlerFunc(func(_ context.Context, task *Task) (json.RawMessage, error) {
		begun <- task.Run()
		return nil, envelope.Errorf(envelope.CodeUnavailable, "not now")
	})}
	node, ctx := serveDurable(t, time.Minute, agent)
	if _, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	r := <-begun
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for r.lane.busy() && ctx.Err() == nil { // until the message is back in the queue
		<-tick.C
	}
	if n, err := swept(ctx, r.lane, r.id); n != 0 || err != nil {
		t.Errorf("the sweep has queued %d, %v", n, err)
	}
}

// The server removes the record of a run at the age of the bucket, which may be less than what the run
// has time for. The sweep writes the record of a paused run again before that, so that the run's deadline
// ends it, with an answer.
func TestAPausedRunOutlivesTheAgeOfItsRecord(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	const age, timeout = 6 * time.Second, 9 * time.Second
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err != nil {
		t.Fatal(err)
	}
	node, ctx := serveDurableOn(t, js, 300*time.Millisecond, Agent{Entity: "agent.x", Handler: HandlerFunc(func(context.Context, *Task) (json.RawMessage, error) {
		return nil, errors.New("it is paused")
	})}, func(cfg *Config) {
		if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxAge: age}}}); err != nil {
			t.Fatal(err)
		}
		cfg.Durable.Sweep, cfg.Durable.MaxTimeout = 200*time.Millisecond, timeout
	})
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
	if _, err := node.Command(ctx, "agent.x", intents.PauseTask{Target: intents.Target{ID: task.ID, Durable: true}}); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Submit(ctx, task, client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	follow, cancel := context.WithTimeout(ctx, timeout+20*time.Second)
	defer cancel()
	reply, err := node.Result(follow, task.To, task.ID, client.ResultOptions{Follow: true})
	var problem *envelope.Error
	if !errors.As(err, &problem) || problem.Code != envelope.CodeTimeout || reply == nil {
		t.Errorf("%+v, %v; want %s", reply, err, envelope.CodeTimeout)
	}
}

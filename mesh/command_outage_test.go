package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// fullStates is a store that takes no checkpoints while full is set.
type fullStates struct {
	*jetstream.States
	full atomic.Bool
}

func (s *fullStates) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	if s.full.Load() {
		return 0, jetstream.ErrFull
	}
	return s.States.PutNoted(ctx, id, prev, data, note)
}

// outage is a run that has begun, and whose store takes no more checkpoints.
type outage struct {
	t     *testing.T
	ctx   context.Context
	node  *Node
	store *fullStates
	run   *Run
	ended chan error // why the handler's context ended
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	o, began := &outage{t: t, store: &fullStates{}, ended: make(chan error, 1)}, make(chan *Run, 1)
	step := state.Step{Kind: state.StepHandler}
	agent := Agent{Entity: "agent.x", Handler: HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
		if err := task.Run().Commit(ctx, step, nil); err != nil {
			return nil, err
		}
		began <- task.Run()
		select {
		case <-task.Run().StopRequested():
			return nil, task.Run().Commit(ctx, step, nil)
		case <-ctx.Done():
			o.ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		}
	})}
	o.node, o.ctx = serveDurable(t, time.Minute, agent, func(cfg *Config) {
		o.store.States = cfg.Durable.States.(*jetstream.States)
		cfg.Durable.States = o.store
	})
	t.Cleanup(func() { o.store.full.Store(false) })
	if _, err := o.node.Submit(o.ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	o.run = begun(t, o.ctx, began)
	o.store.full.Store(true)
	return o
}

// order sends a command to the workers.
func (o *outage) order(cmd intents.Command) {
	o.t.Helper()
	raw, err := sender.NewCommand("human.ada", "agent.x", cmd).AppendJSON(nil)
	if err != nil {
		o.t.Fatal(err)
	}
	if err := o.node.conn.Publish(o.run.lane.host.ctl, raw); err != nil {
		o.t.Fatal(err)
	}
}

// A cancel ends the handler of a run without the store, also while all goroutines that look runs up
// wait for it.
func TestACancelWaitsForNoStore(t *testing.T) {
	t.Parallel()
	o, over := newOutage(t), make(chan struct{})
	t.Cleanup(func() { close(over) })
	for range lookers {
		o.run.lane.host.lookups.Go(func() { <-over })
	}
	o.order(intents.CancelTask{Run: o.run.ID()})
	select {
	case err := <-o.ended:
		var problem *envelope.Error
		if !errors.As(err, &problem) || problem.Code != envelope.CodeCancelled {
			t.Error(err)
		}
	case <-o.ctx.Done():
		t.Fatal("the handler goes on")
	}
}

// A command whose result cannot be stored in time is not answered, and holds up no other intent. It
// is applied when the store takes it; until then the worker accepts no other one for that run.
func TestACommandThatCannotBeStoredHoldsUpNothing(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	for range lookers {
		o.order(intents.PauseTask{Target: intents.Target{Run: o.run.ID()}})
	}
	natstest.Eventually(t, "a pause is applied", func() bool { return o.run.applying.Load() != nil })
	fetch := envelope.New(envelope.TypeTask, "human.ada", "agent.x", intents.ContextFetch, json.RawMessage(`{"id":"`+envelope.NewID()+`"}`))
	var problem *envelope.Error
	if _, err := o.node.Send(o.ctx, fetch, client.SendOptions{}); err != nil && !(errors.As(err, &problem) && problem.FromPeer()) {
		t.Fatalf("%s is not answered: %v", fetch.Intent, err)
	}
	again := &orders.Order{Order: run.Order{Envelope: envelope.NewID(), Intent: intents.TaskPause, From: "human.ada", Run: o.run.ID()}}
	if out := o.run.lane.commands.apply(o.ctx, again, false, false); !out.Silent || o.ctx.Err() != nil {
		t.Errorf("another pause: %+v", out)
	}
	o.store.full.Store(false)
	select {
	case <-o.run.StopRequested():
	case <-o.ctx.Done():
		t.Fatal("the pause is lost")
	}
}

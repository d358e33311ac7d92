package sdsi_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// lane is node with a durable lane.
func (r *rig) lane(entity string) *mesh.Node {
	r.Helper()
	nc := r.conn()
	js, err := natsjs.New(nc)
	if err != nil {
		r.Fatal(err)
	}
	d := &mesh.Durable{Create: true, Sweep: -1}
	d.SetStores(jetstream.Open(jetstream.Gather(js), subject.Map{}))
	n, err := mesh.New(nc, mesh.Config{Entity: entity, Heartbeat: -1, Durable: d})
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// deploy serves the trams on the durable lane with a template of keys and an input schema, until the returned function is called. versions may be nil.
func (r *rig) deploy(schemaID, keys, input string, handler mesh.HandlerFunc, versions sdsi.Versions) (stop func()) {
	r.Helper()
	tpl, err := template.FromJSONSchema(schemaID, "trams", json.RawMessage(keys), nil)
	if err != nil {
		r.Fatal(err)
	}
	agent := mesh.Agent{Entity: trams, Handler: handler, Intents: intents.NewRegistry(), DefaultIntent: intents.RunIntent(trams)}
	if err := agent.Intents.Register(intents.FromIO(agent.DefaultIntent, json.RawMessage(input), nil)); err != nil {
		r.Fatal(err)
	}
	agent.Retry = mesh.RetryPolicy{Max: 1, Base: time.Millisecond}
	desk := r.desk(sdsi.DeskConfig{}, tpl)
	desk.Use(versions)
	if err := desk.Attach(&agent); err != nil {
		r.Fatal(err)
	}
	ready, done := make(chan struct{}), make(chan error, 1)
	agent.Ready = func() { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- r.lane(trams).Serve(ctx, agent) }()
	natstest.Within(r.TB, "the agent", ready)
	var stopped atomic.Bool
	stop = func() {
		if cancel(); stopped.CompareAndSwap(false, true) {
			natstest.Within(r.TB, "the end", done)
		}
	}
	r.Cleanup(stop)
	return stop
}

const (
	lenient = `{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`
	strict  = `{"type":"object","required":["a","b"],"properties":{"a":{"type":"string"},"b":{"type":"string"}}}`
)

// durableRig is a rig whose server has the streams of the durable lane.
func durableRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, true)
	js, err := natsjs.New(r.conn())
	if err == nil {
		_, err = jetstream.Apply(t.Context(), js, jetstream.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.client = r.lane("human.ada")
	return r
}

// A run that has done something continues, whatever the templates and schemas of the worker that
// continues it: its payload was checked when the run began. So Exchange has no reason to send it
// again.
func TestARunThatHasWorkedContinuesUnderAnotherTemplate(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]struct{ schemaID, keys, input string }{
		"a stricter input schema":     {"own_v1", lenient, strict},
		"a stricter template":         {"own_v1", strict, strict},
		"a version that is not known": {"own_v2", strict, strict},
		"one that is like the old":    {"own_v2", lenient, lenient},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := durableRig(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var effects atomic.Int32
			parked := make(chan string, 9)
			handler := func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				if task.Run().View().Doc.Variables != nil {
					return json.Marshal(map[string]json.RawMessage{"input": task.Input()})
				}
				effects.Add(1)
				if err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error {
					c.Doc.Variables = json.RawMessage(`{"paid":true}`)
					return nil
				}); err != nil {
					return nil, err
				}
				err := task.Run().Park(ctx, aaif.RunPaused, nil)
				parked <- task.Envelope.ID
				return nil, err
			}
			stop := r.deploy("own_v1", lenient, lenient, handler, nil)
			client := sdsi.NewClient(r.client)
			if _, err := client.Template(ctx, trams, "trams", ""); err != nil {
				t.Fatal(err)
			}
			type outcome struct {
				*sdsi.Exchanged
				err error
			}
			done := make(chan outcome, 1)
			go func() {
				out, err := client.Exchange(ctx, trams, template.Payload{SchemaID: "own_v1", Payload: json.RawMessage(`{"a":"x"}`)}, sdsi.ExchangeOptions{Durable: true})
				done <- outcome{out, err}
			}()
			id := natstest.Within(t, "the run to park", parked)
			stop()
			r.deploy(next.schemaID, next.keys, next.input, handler, nil)
			if _, err := r.client.Command(ctx, trams, intents.ResumeTask{Target: intents.Target{ID: id}}); err != nil {
				t.Fatal(err)
			}
			select {
			case again := <-parked:
				t.Fatalf("the work is done again, as task %s", again)
			case out := <-done:
				if out.err != nil {
					t.Fatal(out.err)
				}
				contains(t, "the result", string(out.Envelope.Payload), `{"input":{"a":"x"}}`)
			case <-ctx.Done():
				t.Fatal("no result")
			}
			if n := effects.Load(); n != 1 {
				t.Errorf("the effect happened %d times", n)
			}
		})
	}
}

// A run that waits for a person has worked: the answer is not dropped.
func TestARunThatWaitsForAPersonContinuesUnderAnotherTemplate(t *testing.T) {
	t.Parallel()
	r := durableRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var asked atomic.Int32
	handler := func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		answer, err := task.Call(ctx, mesh.Call{To: "human.grace", Payload: json.RawMessage(`{"text":"May I?"}`), Key: "grace"})
		var waits *mesh.PendingError
		if errors.As(err, &waits) {
			asked.Add(1)
			return nil, task.Run().ParkUntil(ctx, mesh.Wake{On: []state.Wait{waits.Wait}}, nil)
		}
		if err != nil {
			return nil, err
		}
		return answer.Envelope.Payload, nil
	}
	stop := r.deploy("own_v1", lenient, lenient, handler, nil)
	task := envelope.New(envelope.TypeTask, r.client.Entity(), trams, intents.Exchange, json.RawMessage(`{"schema_id":"own_v1","payload":{"a":"x"}}`))
	if _, err := r.client.Submit(ctx, task, mesh.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	grace := r.lane("human.grace")
	questions := func() []*mesh.PersonTask {
		t.Helper()
		all, err := grace.PersonTasks(ctx, "human.grace")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for parked := false; !parked; { // with the wait in its record
		c, err := grace.Run(ctx, trams, task.ID)
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		parked = err == nil && len(c.Mesh.Waits) > 0 && c.Mesh.Owner == ""
	}
	stop()
	r.deploy("own_v2", strict, strict, handler, nil)
	question := questions()[0]
	if err := grace.AnswerPersonTask(ctx, question, question.Task.Reply(envelope.TypeResult, json.RawMessage(`{"text":"yes"}`))); err != nil {
		t.Fatal(err)
	}
	reply, err := r.client.Await(ctx, task, mesh.ResultOptions{})
	if err != nil || string(reply.Payload) != `{"text":"yes"}` || asked.Load() != 1 {
		t.Errorf("%v, %v, after %d questions", reply, err, asked.Load())
	}
}

// A run that has done nothing yet is checked by each worker that claims it.
func TestARunThatHasNotWorkedIsChecked(t *testing.T) {
	t.Parallel()
	r := durableRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	away := &away{}
	r.deploy("own_v1", lenient, lenient, sells, away)
	task := envelope.New(envelope.TypeTask, r.client.Entity(), trams, intents.Exchange, json.RawMessage(`{"schema_id":"own_v0","payload":{"a":"x"}}`))
	if _, _, err := r.client.Perform(ctx, task, mesh.SubmitOptions{}, mesh.ResultOptions{}); code(err) != envelope.CodeNotFound || away.asked.Load() != 2 {
		t.Errorf("%v, after %d questions", err, away.asked.Load())
	}
}

// away is a store that cannot be reached once, and then has no version.
type away struct {
	stored
	asked atomic.Int32
}

func (a *away) Get(context.Context, string, string) ([]byte, error) {
	if a.asked.Add(1) == 1 {
		return nil, jetstream.ErrUnavailable
	}
	return nil, jetstream.ErrNotFound
}

package orchestrate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

const (
	// longest is how long a test waits for an expected event.
	longest = time.Minute
	// Leases of messages. One that is held does not end on a busy machine, except a short one.
	longLease  = 30 * time.Second
	shortLease = 1500 * time.Millisecond
	// boss is the entity of the teams in tests.
	boss = "agent.boss"
)

// rig is a server with the streams of the durable lane, and a client on it.
type rig struct {
	t      testing.TB
	srv    *natsd.Server
	client *mesh.Node
	events chan *envelope.Envelope // of bus.mesh.run
	last   *envelope.Envelope      // the last event that told returned

	retries int           // of durable tasks, for agents that are served from now on
	timeout time.Duration // timeout of a task, for agents that are served from now on
	lease   time.Duration // of the messages of nodes from now on
}

// shortLeases is for a test that waits until the lease of a message ends.
func (r *rig) shortLeases() *rig {
	r.lease = shortLease
	return r
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, srv: natstest.Run(t, natsd.Config{JetStream: true}), events: make(chan *envelope.Envelope, 1<<14), lease: longLease}
	nc := natstest.Conn(t, r.srv)
	if _, err := jetstream.Apply(t.Context(), r.js(nc), jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	r.client = r.node(nc, mesh.Config{Entity: "human.ada"}, true)
	_, err := nc.Subscribe("bus.mesh.run", func(m *nats.Msg) {
		if e, err := envelope.Parse(m.Data); err == nil {
			r.events <- e
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) js(nc *nats.Conn) natsjs.JetStream {
	r.t.Helper()
	js, err := natsjs.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	return js
}

// node is a node as a command would set it up, with a durable lane or without.
func (r *rig) node(nc *nats.Conn, cfg mesh.Config, durable bool, change ...func(*mesh.Durable)) *mesh.Node {
	r.t.Helper()
	if durable {
		s := jetstream.Open(jetstream.Gather(r.js(nc)), subject.Map{})
		cfg.Durable = &mesh.Durable{
			Queue: s.Queue, Replies: s.Replies, Dead: s.Dead, States: s.States, Clock: s.Clock, Inbox: s.Inbox,
			Lease: r.lease, Create: true, Sweep: -1,
		}
		for _, f := range change {
			f(cfg.Durable)
		}
	}
	cfg.Heartbeat, cfg.Drain = -1, 100*time.Millisecond
	node, err := mesh.New(nc, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return node
}

// serving is an agent with a connection of its own.
type serving struct {
	nc     *nats.Conn
	cancel context.CancelFunc
	stop   func() // waits until it has
}

// kill cuts the worker off from the mesh at once.
func (s *serving) kill() {
	s.nc.Close()
	s.cancel()
}

// serve serves agents with one handler until they are stopped, or the test
// ends, and returns when they answer.
func (r *rig) serve(durable bool, h mesh.Handler, entities ...string) *serving {
	r.t.Helper()
	return r.serveAs(durable, h, entities, func(*serving, *mesh.Durable) {})
}

// serveAs is serve with another configuration of the durable lane.
func (r *rig) serveAs(durable bool, h mesh.Handler, entities []string, change func(*serving, *mesh.Durable)) *serving {
	r.t.Helper()
	s := &serving{nc: natstest.Conn(r.t, r.srv)}
	node := r.node(s.nc, mesh.Config{}, durable, func(d *mesh.Durable) { change(s, d) })
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var ready sync.WaitGroup
	for _, e := range entities {
		ready.Add(1)
		wg.Go(func() {
			if err := node.Serve(ctx, mesh.Agent{Entity: e, Handler: h, Concurrency: 8, Timeout: r.timeout, Retry: mesh.RetryPolicy{Max: r.retries, Base: time.Millisecond}, Ready: sync.OnceFunc(ready.Done)}); err != nil && ctx.Err() == nil {
				r.t.Errorf("serve %s: %v", e, err)
			}
		})
	}
	s.cancel = cancel
	s.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	r.t.Cleanup(s.stop)
	ready.Wait()
	if durable { // the lane is ready a little later
		queue := jetstream.NewQueue(r.js(s.nc), subject.Map{})
		for _, e := range entities {
			until(r.t, e+" has a durable lane", func() bool {
				ok, err := queue.Served(r.t.Context(), e)
				return ok && err == nil
			})
		}
	}
	return s
}

// says is a handler that always answers the same: a result's payload, or an
// error "!CODE".
func says(answer string) mesh.HandlerFunc {
	return func(context.Context, *mesh.Task) (json.RawMessage, error) {
		if code, failed := strings.CutPrefix(answer, "!"); failed {
			return nil, envelope.Errorf(envelope.Code(code), "it failed")
		}
		return json.RawMessage(answer), nil
	}
}

// plan compiles an orchestration block, with further members at the root of the document.
func plan(t testing.TB, orchestration, root string) *orchestrate.Plan {
	t.Helper()
	text := fmt.Sprintf(`{"sc_standard":"SC-006","agent":{"name":"Boss","goal":"g","orchestration":%s}%s}`, orchestration, root)
	doc, err := aaif.Parse([]byte(text), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	p, err := orchestrate.Compile(doc.Definition(), false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// extras returns the root member with the settings that AAIF lacks.
func extras(members string) string {
	return `,"x-aeemesh":{"orchestration":{` + members + `}}`
}

// team returns a team as a handler. Its result has the record of the swarm.
func team(p *orchestrate.Plan, agentModel orchestrate.AgentModel) mesh.HandlerFunc {
	return teamWith(p, agentModel, orchestrate.Options{})
}

func teamWith(p *orchestrate.Plan, agentModel orchestrate.AgentModel, opts orchestrate.Options) mesh.HandlerFunc {
	t := orchestrate.New(p, opts)
	return func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		res, err := t.Handle(ctx, task, agentModel)
		if err != nil || res.Swarm == nil {
			return res.Payload, err
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(res.Payload, &members); err != nil {
			return nil, err
		}
		members[orchestrate.SwarmMember] = res.Swarm
		return json.Marshal(members)
	}
}

// answer is the answer to a task: its payload without the member swarm, and that member.
type answer struct {
	payload string
	swarm   orchestrate.Record
	err     *envelope.Error
}

func (r *rig) read(payload json.RawMessage, err error) answer {
	r.t.Helper()
	var a answer
	if err != nil && !errors.As(err, &a.err) {
		r.t.Fatal(err)
	}
	if a.err != nil {
		for _, m := range a.err.Details {
			if m.Name == orchestrate.SwarmMember {
				if err := json.Unmarshal(m.Value, &a.swarm); err != nil {
					r.t.Fatal(err)
				}
			}
		}
		return a
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(payload, &members); err != nil {
		r.t.Fatal(err)
	}
	if raw := members[orchestrate.SwarmMember]; raw != nil {
		if err := json.Unmarshal(raw, &a.swarm); err != nil {
			r.t.Fatal(err)
		}
	}
	delete(members, orchestrate.SwarmMember)
	b, err := json.Marshal(members)
	if err != nil {
		r.t.Fatal(err)
	}
	a.payload = string(b)
	return a
}

func newTask(payload, requires string) *envelope.Envelope { return taskFor(boss, payload, requires) }

func taskFor(entity, payload, requires string) *envelope.Envelope {
	task := envelope.New(envelope.TypeTask, "human.ada", entity, intents.RunIntent(entity), json.RawMessage(payload))
	if requires != "" {
		task.Requires = json.RawMessage(requires)
	}
	return task
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), longest)
	r.t.Cleanup(cancel)
	return ctx
}

// ask sends the team a task over the live lane.
func (r *rig) ask(payload, requires string) answer {
	r.t.Helper()
	reply, err := r.client.Send(r.ctx(), newTask(payload, requires), mesh.SendOptions{})
	if err != nil {
		return r.read(nil, err)
	}
	return r.read(reply.Payload, nil)
}

// submit sends the team a task over the durable lane.
func (r *rig) submit(payload, requires string) *envelope.Envelope {
	r.t.Helper()
	return r.submitted(newTask(payload, requires))
}

func (r *rig) submitted(task *envelope.Envelope) *envelope.Envelope {
	r.t.Helper()
	if _, err := r.client.Submit(r.ctx(), task, mesh.SubmitOptions{}); err != nil {
		r.t.Fatal(err)
	}
	return task
}

// result waits for the answer to a task on the durable lane.
func (r *rig) result(task *envelope.Envelope) answer {
	r.t.Helper()
	reply, err := r.client.Result(r.ctx(), task.To, task.ID, mesh.ResultOptions{Follow: true})
	if err != nil {
		return r.read(nil, err)
	}
	return r.read(reply.Payload, nil)
}

// checkpoint returns the last checkpoint of a task.
func (r *rig) checkpoint(task *envelope.Envelope) *state.Checkpoint {
	r.t.Helper()
	c, err := r.client.Run(r.ctx(), task.To, task.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// told returns the steps that were published on the bus, up to an event with this intent. The test
// fails if there is none.
func (r *rig) told(until string) (steps []string, last intents.StepEvent) {
	r.t.Helper()
	timeout := time.After(longest)
	for {
		select {
		case e := <-r.events:
			var s intents.StepEvent
			if err := json.Unmarshal(e.Payload, &s); err != nil {
				r.t.Fatal(err)
			}
			steps = append(steps, strings.TrimPrefix(e.Intent, "mesh.run.")+" "+s.Alias)
			if r.last = e; e.Intent == until {
				return steps, s
			}
		case <-timeout:
			r.t.Fatalf("%s was never told, only %q", until, steps)
		}
	}
}

// within receives from c in good time.
func within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(longest):
		t.Fatalf("never: %s", what)
		panic("unreachable")
	}
}

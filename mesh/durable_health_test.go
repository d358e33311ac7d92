package mesh_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/metrictest"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

func TestADeafLaneShows(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	log := &syncBuffer{}
	node := r.lane(mesh.Config{Logger: textLogger(log)}, func(d *mesh.Durable) { d.Create = false })
	begin(t, node, mesh.Agent{Entity: reviewer, Handler: echo})
	eventually(t, "the agent is degraded", func() bool {
		msg, err := r.nc.RequestMsg(&nats.Msg{Subject: reviewer, Data: encode(t, newTask(reviewer, intents.StatusHealth, `{}`))}, time.Second)
		if err != nil {
			return false
		}
		p := parse(t, msg.Data).Payload
		return member(t, p, "status") == `"degraded"` && strings.Contains(member(t, p, "details"), `"state":"deaf"`)
	})
	msg, err := r.nc.Request("$SRV.STATS.agent-reviewer", nil, patience)
	if err != nil || !strings.Contains(string(msg.Data), `"name":"work"`) || !strings.Contains(string(msg.Data), `"state":"deaf"`) {
		t.Errorf("stats %s, %v", msg.Data, err)
	}
	if _, err := jetstream.Apply(ctxFor(t), r.js(r.nc), jetstream.Options{Map: r.m, Entities: []string{reviewer}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "who reads warnings reads that it is over", func() bool {
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, `msg="durable lane"`) && strings.Contains(line, "state=working") {
				return true
			}
		}
		return false
	})
}

// Runs that have begun need room in the store to end. If there is none, the worker's health says
// what an operator has to do, and after that they end.
func TestARunThatHasNoRoomToEndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	gate := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil); err != nil {
			return nil, err
		}
		return gate.Handle(ctx, task)
	})})
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	within(t, "the run", gate.entered)
	limit := func(bytes func(now uint64) int64) {
		info := r.bucketInfo()
		info.Config.MaxBytes = bytes(info.State.Bytes)
		if _, err := r.js(r.nc).UpdateStream(ctxFor(t), info.Config); err != nil {
			t.Fatal(err)
		}
	}
	before := r.bucketInfo().Config.MaxBytes
	limit(func(now uint64) int64 { return int64(now) })
	gate.open()
	eventually(t, "the health names the way out", func() bool {
		msg, err := r.nc.RequestMsg(&nats.Msg{Subject: reviewer, Data: encode(t, newTask(reviewer, intents.StatusHealth, `{}`))}, time.Second)
		if err != nil {
			return false
		}
		p := parse(t, msg.Data).Payload
		return member(t, p, "status") == `"degraded"` && strings.Contains(string(p), "an operator raises its limit")
	})
	limit(func(uint64) int64 { return before })
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
}

// A user with the permissions of an earlier release may not write, or not read, the replies of its
// runs. The worker's health names the subject and what to do, and its log does not repeat it for
// each redelivery of each run.
func TestAWorkerThatMayNotStoreRepliesSaysSo(t *testing.T) {
	t.Parallel()
	for _, denied := range []string{"$KV.aee_reply.>", "$JS.API.DIRECT.GET.KV_aee_state.$KV.aee_reply.>"} {
		t.Run(denied, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
				{Name: "all", Password: "p"},
				{Name: "old", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{denied}}}},
			}})
			r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("all", "p"))}}
			if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{Map: r.m}); err != nil {
				t.Fatal(err)
			}
			log := &syncBuffer{}
			r.serve(r.laneOn(natstest.Conn(t, srv, nats.UserInfo("old", "p")), mesh.Config{Logger: textLogger(log)}), mesh.Agent{Handler: echo})
			client := r.laneOn(r.nc, mesh.Config{Entity: ada})
			for range 3 {
				task := newTask(reviewer, "code.review", `{}`)
				c := state.New(reviewer, task.ID, "") // of an earlier delivery
				c.Mesh.Task = encode(t, task)
				data, err := state.Codec{}.Encode(c)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := jetstream.NewStates(r.js(r.nc), r.m).Put(ctxFor(t), state.ID{Entity: reviewer, Run: c.Doc.RunID}, 0, data); err != nil {
					t.Fatal(err)
				}
				r.submit(client, task)
			}
			eventually(t, "the health names the subject and the remedy", func() bool {
				p := r.request(newTask(reviewer, intents.StatusHealth, `{}`)).Payload
				return member(t, p, "status") == `"degraded"` && strings.Contains(string(p), "runs cannot be stored: ") &&
					strings.Contains(string(p), strings.TrimSuffix(denied, ">")) && strings.Contains(string(p), "print the permissions anew")
			})
			equal(t, "errors of single runs in the log", strings.Count(log.String(), "run not written"), 0)
		})
	}
}

// A run that is sealed with a key that this worker lacks waits for another
// worker, and the worker's health says so.
func TestARunThatCannotBeReadShows(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	ring, err := state.NewKeyring(state.Key{Secret: bytes.Repeat([]byte{7}, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	c := state.New(reviewer, task.ID, "")
	c.Mesh.Task = encode(t, task)
	data, err := state.Codec{Seal: ring}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.NewStates(r.js(r.nc), r.m).Put(ctxFor(t), state.ID{Entity: reviewer, Run: c.Doc.RunID}, 0, data); err != nil {
		t.Fatal(err)
	}
	r.submit(r.client(), task)
	eventually(t, "the agent is degraded", func() bool {
		p := r.request(newTask(reviewer, intents.StatusHealth, `{}`)).Payload
		return member(t, p, "status") == `"degraded"` && strings.Contains(member(t, p, "details"), "cannot read the run of a waiting task: run "+c.Doc.RunID)
	})
}

// A message that claims to be about a run, and is about another task, is that
// task.
func TestAForgedRunHeaderIsNotBelieved(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	client := r.client()
	done := newTask(reviewer, "code.review", `{"n":1}`)
	run := r.submit(client, done).Run
	if _, err := r.result(client, done); err != nil {
		t.Fatal(err)
	}
	task := newTask(reviewer, "code.review", `{"n":2}`)
	if err := r.nc.PublishMsg(&nats.Msg{Subject: "aee.work.normal." + reviewer, Header: nats.Header{headers.HeaderRun: {run}}, Data: encode(t, task)}); err != nil {
		t.Fatal(err)
	}
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":2}` {
		t.Errorf("%v, %v", reply, err)
	}
}

func TestTheLaneIsMeasuredAndTraced(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	meter, collect := metrictest.New()
	spans := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: g})
	client := r.lane(mesh.Config{Entity: ada, TracerProvider: tp})
	ctx, root := tp.Tracer("test").Start(ctxFor(t), "root")
	task := newTask(reviewer, "code.review", `{}`)
	if _, err := client.Submit(ctx, task, mesh.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	root.End()
	within(t, "the task", g.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(task) != nil })
	nc.Close()
	node := r.lane(mesh.Config{MeterProvider: meter, TracerProvider: tp})
	r.serve(node, mesh.Agent{Retry: mesh.RetryPolicy{Max: 1, Base: time.Millisecond}, Handler: failing(envelope.Errorf(envelope.CodeUnavailable, "no luck"))})
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeUnavailable {
		t.Fatal(err)
	}
	r.drainedQueue()
	got := map[string]float64{}
	var data metricdata.ResourceMetrics
	if err := collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				got[m.Name] += float64(p.Value)
			}
		case metricdata.Histogram[int64]:
			for _, p := range d.DataPoints {
				got[m.Name] += float64(p.Count)
			}
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				got[m.Name] += float64(p.Count)
			}
		case metricdata.Gauge[int64]:
			for range d.DataPoints {
				got[m.Name]++
			}
		case metricdata.Gauge[float64]:
			for range d.DataPoints {
				got[m.Name]++
			}
		}
	}
	for name, least := range map[string]float64{
		"aee.run.recoveries": 1, "aee.task.redeliveries": 2, "aee.task.retries": 1, "aee.dead_letters": 1,
		"aee.checkpoint.duration": 4, "aee.checkpoint.size": 4, // claim, retry, claim, end
		"aee.queue.backlog": 4, "aee.queue.leased": 4, "aee.queue.oldest.age": 4, // one for each priority
		"aee.task.duration": 1,
	} {
		if got[name] < least {
			t.Errorf("%s: %v, want at least %v", name, got[name], least)
		}
	}
	eventually(t, "all spans end", func() bool { return len(spans.GetSpans()) == 3 })
	for _, s := range spans.GetSpans() {
		equal(t, s.Name+": trace", s.SpanContext.TraceID(), root.SpanContext().TraceID())
	}
	g.open()
}

package mesh_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// JetStream refuses each request of an agent's worker once. What its runs
// have others do, people among them, is asked once, and their attempt goes on.
// Finding D7 of the reliability review.
func TestCallsOutlastAnOutageOfJetStream(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	outage := natstest.NewOutage(t, r.srv)
	nc := natstest.Conn(t, r.srv)
	d := r.durableOver(outage.JetStream(t, nc))
	r.serve(r.nodeOn(nc, mesh.Config{Durable: d, Heartbeat: -1}), mesh.Agent{Entity: "agent.asker", Handler: asking{people: []string{bob}}})

	hops := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.other", Handler: hops})
	r.serve(r.nodeOn(nc, mesh.Config{Durable: d, Heartbeat: -1}), mesh.Agent{Entity: "agent.caller", Handler: calling(mesh.Call{To: "agent.other", Key: "one"}, nil)})

	client := r.client()
	asks := newTask("agent.asker", "code.review", `{"text":"may I?"}`)
	calls := newTask("agent.caller", "code.review", `{"text":"dig"}`)
	outage.RefuseFirst(1)
	r.submit(client, asks)
	r.submit(client, calls)
	hop := within(t, "the hop", hops.entered)
	if hop.Run() == nil {
		t.Error("the hop came over the live lane")
	}
	var ask *mesh.PersonTask
	eventually(t, "bob is asked", func() bool {
		open, err := client.PersonTasks(ctxFor(t), bob)
		if err == nil && len(open) == 1 {
			ask = open[0]
		}
		return ask != nil
	})
	hops.open()
	if err := client.AnswerPersonTask(ctxFor(t), ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"text":"you may"}`))); err != nil {
		t.Fatal(err)
	}
	for _, task := range []*envelope.Envelope{asks, calls} {
		if reply, err := r.result(client, task); err != nil {
			t.Errorf("%s: %v, %v", task.To, reply, err)
		}
		equal(t, "attempts of "+task.To, r.record(task).Mesh.Attempt, 0)
	}
	if outage.Refused() == 0 {
		t.Error("nothing was refused")
	}
	all, err := client.PersonTasks(ctxFor(t), "")
	if err != nil || len(all) != 1 {
		t.Errorf("%d tasks for people, %v", len(all), err)
	}
	equal(t, "hops beside the first", len(hops.entered), 0)
}

// JetStream refuses each request of the caller's worker once, while that waits for the job that the
// called agent does asynchronously: it goes on waiting, and does not cancel the job.
func TestAJobIsAwaitedThroughAnOutageOfJetStream(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	jobs := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Async: true, Handler: jobs})
	outage, nc := natstest.NewOutage(t, r.srv), natstest.Conn(t, r.srv)
	ended := make(chan error, 2)
	call := calling(mesh.Call{To: helper, Key: "1", Live: true}, func(_ *mesh.Answer, err error) { ended <- err })
	r.serve(r.nodeOn(nc, mesh.Config{Durable: r.durableOver(outage.JetStream(t, nc)), Heartbeat: -1}), mesh.Agent{Entity: lead, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		outage.RefuseFirst(1)
		return call.Handle(ctx, task)
	})})
	r.hears(helper, lead)
	client, task := r.client(), newTask(lead, "lead.work", `{"n":1}`)
	r.submit(client, task)
	within(t, "the job", jobs.entered)
	eventually(t, "the reading of the reply is refused", func() bool {
		return outage.RefusedOf("DIRECT.GET."+jetstream.StreamReply) > 0 || len(ended) > 0
	})
	jobs.open()
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
	equal(t, "attempts", r.record(task).Mesh.Attempt, 0)
	equal(t, "jobs beside the first", len(jobs.entered), 0)
}

// The queue takes no more tasks for a moment: a run that has another one do
// something waits, and does not fail.
func TestACallWaitsForRoomInTheQueue(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	log := &syncBuffer{}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: echo})
	g := newGate(t)
	r.serve(r.lane(mesh.Config{Logger: textLogger(log)}), mesh.Agent{Entity: lead, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		g.Handle(ctx, task)
		return calling(mesh.Call{To: helper, Key: "one"}, nil).Handle(ctx, task)
	})})
	client, task := r.client(), newTask(lead, "lead.work", `{"n":1}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	stream, err := r.js(r.nc).Stream(ctxFor(t), jetstream.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	limit := func(n int64) {
		cfg := stream.CachedInfo().Config
		cfg.MaxMsgs = n
		if _, err := r.js(r.nc).UpdateStream(ctxFor(t), cfg); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // which is there already
	g.open()
	eventually(t, "the hop is refused", func() bool { return strings.Contains(log.String(), "maximum messages exceeded") })
	limit(-1)
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
	equal(t, "attempts", r.record(task).Mesh.Attempt, 0)
}

// The run's record names a call that an earlier owner has sent over the durable lane. Whether the
// other agent has that lane is then known, and is not asked of a queue that does not answer.
func TestACallThatWasSentDurablyIsNotSentLive(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	helpers := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Concurrency: 2, Handler: helpers})
	call := calling(mesh.Call{To: helper, Key: "one"}, nil)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Entity: lead, Handler: call})
	client, task := r.client(), newTask(lead, "lead.work", `{"n":1}`)
	r.submit(client, task)
	within(t, "the call", helpers.entered)
	nc.Close()

	outage := natstest.NewOutage(t, r.srv)
	next := newGate(t)
	nc = natstest.Conn(t, r.srv)
	heir := r.laneOn(nc, mesh.Config{}, func(d *mesh.Durable) {
		d.Queue = jetstream.NewQueue(jetstream.Gather(outage.JetStream(t, nc)), r.m)
	})
	r.serve(heir, mesh.Agent{Entity: lead, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		next.Handle(ctx, task)
		return call.Handle(ctx, task)
	})})
	within(t, "the next owner", next.entered)
	outage.Silence(true)
	defer outage.Silence(false)
	next.open()
	helpers.open()
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
	if len(helpers.entered) > 0 {
		t.Errorf("the call is made again, over the durable lane: %v", (<-helpers.entered).Run() != nil)
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// unleased is a lane whose leases do not end during a test: what goes on does so because a
// death was noticed.
func unleased(r *durableRig, nc *nats.Conn) func(*mesh.Durable) {
	return func(d *mesh.Durable) {
		d.Lease, d.Sweep, d.Slots = time.Minute, -1, slot.NewStore(r.js(nc), r.m, time.Hour)
	}
}

// claimedRun submits a task that a worker holds at a gate, and returns when its claim is
// written.
func claimedRun(t *testing.T, r *durableRig, client *mesh.Node, g *gate) *envelope.Envelope {
	t.Helper()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	eventually(t, "its claim is written", func() bool {
		c, err := client.Run(t.Context(), task.To, task.ID)
		return err == nil && c.Mesh.Epoch == 1
	})
	return task
}

// guardsAsked waits until so many workers were asked by name to be guardians.
func guardsAsked(t *testing.T, ctl chan *nats.Msg, want int) {
	t.Helper()
	asked := map[string]bool{}
	for len(asked) < want {
		e, err := envelope.Parse(within(t, "a guardian is asked", ctl).Data)
		if err != nil || e.Intent != "mesh.task.guard" {
			continue
		}
		var p struct{ To string }
		if err := json.Unmarshal(e.Payload, &p); err == nil && p.To != "" {
			asked[p.To] = true
		}
	}
}

// A worker has two guardians: the one that outlives the other does the work.
func TestARunGoesOnWhenItsWorkerDiesWithAGuardian(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	shortly := func(d *mesh.Durable) { d.Lease = 20 * time.Second } // so long the queue keeps the message of the dead worker
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}, unleased(r, nc), shortly), mesh.Agent{Handler: g})
	client := r.client()
	task := claimedRun(t, r, client, g)
	ctl := r.listen("aee.ctl.>")
	var others []*nats.Conn
	for range 2 {
		other := natstest.Conn(t, r.srv)
		others = append(others, other)
		r.serve(r.laneOn(other, mesh.Config{Drain: time.Millisecond}, unleased(r, other), shortly), mesh.Agent{Handler: echo})
	}
	guardsAsked(t, ctl, 2)
	settle(t, r.nc)
	others[0].Close()
	nc.Close()
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	r.drainedQueue()
	equal(t, "replies", len(r.replies(task)), 1)
	equal(t, "epoch", r.record(task).Mesh.Epoch, uint64(3)) // the claim, one guardian, the second claim
}

// A worker that was taken for dead while it could not connect is alive, and works on. It stores
// nothing of that, although its lease has not ended.
func TestAWorkerThatWasTakenForDeadStoresNothing(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	line, nc := r.cord()
	g, committed := newGate(t), make(chan error, 1)
	owner := r.serve(r.laneOn(nc, mesh.Config{}, unleased(r, nc)), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		g.Handle(ctx, task)
		committed <- task.Run().Commit(context.Background(), state.Step{Kind: state.StepHandler, Name: "late"}, nil)
		return json.RawMessage(`{"by":"owner"}`), nil
	})})
	client := r.client()
	task := claimedRun(t, r, client, g)
	ctl, heir := r.listen("aee.ctl.>"), natstest.Conn(t, r.srv)
	r.serve(r.laneOn(heir, mesh.Config{}, unleased(r, heir)), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return json.RawMessage(`{"by":"heir"}`), nil
	})})
	guardsAsked(t, ctl, 1)
	line.sever()
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"by":"heir"}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	eventually(t, "the reply is stored", func() bool { return len(r.replies(task)) == 1 })
	before := r.record(task)
	line.mend()
	eventually(t, "the owner is back", nc.IsConnected)
	g.open()
	if err := within(t, "the late commit", committed); !isErr(err, mesh.ErrLost) {
		t.Errorf("the late commit: %v", err)
	}
	owner.end()
	equal(t, "replies", len(r.replies(task)), 1)
	equal(t, "the record", r.record(task).Doc.StateID, before.Doc.StateID)
}

// The first guardian of a worker probes it every 200 ms, the second once a second. The
// worker answers neither.
func TestTheSecondGuardianProbesSeldom(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newDurableRig(t)
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}, unleased(r, nc)), mesh.Agent{Handler: g})
	claimedRun(t, r, r.client(), g)
	ctl, pings := r.listen("aee.ctl.>"), r.listen("$SRV.PING.agent-reviewer.*")
	for range 2 {
		other := natstest.Conn(t, r.srv)
		r.serve(r.laneOn(other, mesh.Config{Drain: time.Millisecond}, unleased(r, other)), mesh.Agent{Handler: echo})
	}
	every := map[string]int{}
	for len(every) < 2 {
		e, err := envelope.Parse(within(t, "a guardian is asked", ctl).Data)
		if err != nil || e.Intent != "mesh.task.guard" {
			continue
		}
		var p struct {
			To    string
			Every int `json:"every_ms"`
		}
		if err := json.Unmarshal(e.Payload, &p); err == nil && p.To != "" {
			every[p.To] = p.Every
		}
	}
	both := slices.Sorted(maps.Values(every))
	equal(t, "what the guardians are asked for", both, []int{0, 1000})
	var probe *nats.Msg
	for probe == nil || string(probe.Data) != "watch" {
		probe = within(t, "a probe", pings)
	}
	answers := r.listen(probe.Reply)
	if err := r.nc.PublishRequest(probe.Subject, probe.Reply, probe.Data); err != nil {
		t.Fatal(err)
	}
	if _, err := r.nc.Request(probe.Subject, []byte("probe"), patience); err != nil { // a ping, which the worker answers after the probe
		t.Fatal(err)
	}
	settle(t, r.nc)
	empty(t, "an answer to a probe", answers)
}

// An agent's only worker has no guardian. The one that is started in its place looks for
// what it has left.
func TestAWorkerThatStartsGoesOnWithTheRunsOfTheDead(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}, unleased(r, nc)), mesh.Agent{Handler: g, MeshConcurrency: 1})
	client := r.client()
	task := claimedRun(t, r, client, g)
	nc.Close()
	next := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(next, mesh.Config{}, unleased(r, next), func(d *mesh.Durable) { d.Sweep = time.Hour }), mesh.Agent{Handler: echo, MeshConcurrency: 1})
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	equal(t, "epoch", r.record(task).Mesh.Epoch, uint64(3))
}

// A worker that starts leaves the runs of the living alone.
func TestAWorkerThatStartsLeavesTheRunsOfTheLiving(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{}, unleased(r, nc)), mesh.Agent{Handler: g})
	client := r.client()
	task := claimedRun(t, r, client, g)
	pings := r.listen("$SRV.PING.agent-reviewer.*")
	next := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(next, mesh.Config{}, unleased(r, next), func(d *mesh.Durable) { d.Sweep = time.Hour }), mesh.Agent{Handler: echo})
	for range 10 { // by the new worker at first, then by the guardian that it becomes
		within(t, "a ping", pings)
	}
	g.open()
	if reply, err := r.result(client, task); err != nil || !strings.Contains(string(reply.Payload), `"n":1`) {
		t.Fatalf("result %v, %v", reply, err)
	}
	equal(t, "epoch", r.record(task).Mesh.Epoch, uint64(1))
}

// A worker that dies between two tasks has no run that a guardian could miss, but holds a
// slot. The worker that is started in its place frees it.
func TestTheSlotOfAnIdleWorkerThatDiedIsFreed(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	agent := mesh.Agent{Handler: echo, MeshConcurrency: 1}
	dying, next := natstest.Conn(t, r.srv), natstest.Conn(t, r.srv)
	leased := func(nc *nats.Conn) func(*mesh.Durable) {
		return func(d *mesh.Durable) { d.Sweep, d.Slots = -1, slot.NewStore(r.js(nc), r.m, 12*time.Second) }
	}
	r.serve(r.laneOn(dying, mesh.Config{Drain: time.Millisecond}, leased(dying)), agent)
	r.holdsSlot(1)
	dying.Close()
	var log syncBuffer
	r.serve(r.laneOn(next, mesh.Config{Logger: textLogger(&log)}, leased(next)), agent)
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "slots of a dead worker freed") {
		t.Errorf("the slot was free when its lease ended:\n%s", log.String())
	}
}

// So does a worker that was there before: it sees that the slot is not renewed. A worker
// that is connected keeps its slot.
func TestAnotherWorkerFreesTheSlotOfAnIdleWorker(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	agent := mesh.Agent{Handler: echo, MeshConcurrency: 1}
	var log syncBuffer
	lane := func(nc *nats.Conn, cfg mesh.Config) *mesh.Node {
		return r.laneOn(nc, cfg, func(d *mesh.Durable) {
			d.Lease, d.Sweep, d.Slots = time.Minute, -1, slot.NewStore(r.js(nc), r.m, 20*time.Second)
		})
	}
	dying, other := natstest.Conn(t, r.srv), natstest.Conn(t, r.srv)
	r.serve(lane(dying, mesh.Config{Drain: time.Millisecond}), agent)
	r.holdsSlot(1)
	r.serve(lane(other, mesh.Config{Logger: textLogger(&log)}), agent)
	<-time.After(7 * time.Second) // it has looked twice
	const freed = "slots of a dead worker freed"
	if strings.Contains(log.String(), freed) {
		t.Fatalf("a worker that lives was taken for dead:\n%s", log.String())
	}
	dying.Close()
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), freed) {
		t.Errorf("the slot was free when its lease ended:\n%s", log.String())
	}
}

// holdsSlot waits until so many slots of the agent are held.
func (r *durableRig) holdsSlot(n int) {
	r.t.Helper()
	slots := slot.NewStore(r.js(r.nc), r.m, time.Minute)
	eventually(r.t, "a slot is held", func() bool {
		held, err := slots.List(ctxFor(r.t), reviewer)
		return err == nil && len(held) == n
	})
}

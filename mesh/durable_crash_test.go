package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// over connects a worker's node through a cable.
func (r *durableRig) over(c *natstest.Cable, change ...func(*mesh.Durable)) *mesh.Node {
	return r.laneOn(natstest.Conn(r.t, r.srv, nats.SetCustomDialer(c)), mesh.Config{}, change...)
}

func TestAKilledWorkersTaskIsFinishedByAnother(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: g})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	events := r.events()
	r.submit(client, task)
	within(t, "the task", g.entered)
	started := r.event(events, intents.TaskStarted)
	equal(t, "epoch told first", member(t, started.Payload, "epoch"), "1")
	eventually(t, "its claim is written", func() bool {
		c, err := client.Run(t.Context(), task.To, task.ID)
		return err == nil && c.Mesh.Epoch == 1
	})
	nc.Close() // no drain, no word: what kill -9 looks like from outside

	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"n":1}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	r.drainedQueue()
	equal(t, "replies", len(r.replies(task)), 1)
	equal(t, "epoch", r.record(task).Mesh.Epoch, uint64(2))
	started = r.event(events, intents.TaskStarted)
	equal(t, "epoch told then", member(t, started.Payload, "epoch"), "2")
}

// The worker stands still for longer than its lease, with the task in its
// hands. Another one finishes. When the first one wakes up, nothing of what it
// does counts.
func TestAZombieChangesNothing(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	line, g := natstest.NewCable(t), newGate(t)
	committed := make(chan error, 1)
	zombie := r.serve(r.over(line), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		g.Handle(ctx, task)
		committed <- task.Run().Commit(context.Background(), state.Step{Kind: state.StepHandler, Name: "late"}, nil)
		return json.RawMessage(`{"by":"zombie"}`), nil
	})})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	line.Block(true)

	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return json.RawMessage(`{"by":"heir"}`), nil
	})})
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"by":"heir"}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	r.drainedQueue()
	before := r.record(task)
	line.Block(false)
	g.open()
	if err := within(t, "the late commit", committed); !isErr(err, mesh.ErrLost) {
		t.Errorf("the late commit: %v", err)
	}
	zombie.end()
	equal(t, "replies", len(r.replies(task)), 1)
	after := r.record(task)
	equal(t, "the record", after.Doc.StateID, before.Doc.StateID)
}

// A late acknowledgement of a worker that lost its task takes the message away
// while the new owner works on it. If that one dies too, nothing is left that
// the server could hand out: the next worker finds the run, as it starts or in its sweep.
func TestALateAckLosesNothing(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	acks := r.listen("$JS.ACK.AEE_WORK.>")
	line, g := natstest.NewCable(t), newGate(t)
	r.serve(r.over(line), mesh.Agent{Handler: g})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":7}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	first := within(t, "a sign of life", acks).Subject
	eventually(t, "it is claimed", func() bool { return r.begun(task) != nil })
	line.Block(true)

	heir := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(heir, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: g})
	within(t, "the task again", g.entered)
	equal(t, "owner", r.record(task).Mesh.Epoch, uint64(2))
	if _, err := r.nc.Request(first, []byte("+ACK"), patience); err != nil { // the zombie's ack, forced
		t.Fatal(err)
	}
	r.drainedQueue()
	heir.Close()

	events := r.events()
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Sweep = 50 * time.Millisecond }), mesh.Agent{Handler: echo})
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"n":7}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	epoch := "2"
	for epoch == "2" { // the heir's own may come late
		epoch = member(t, r.event(events, intents.TaskStarted).Payload, "epoch")
	}
	if epoch != "3" && epoch != "4" { // swept; abandoned, as its owner is dead
		t.Errorf("epoch %s", epoch)
	}
	r.drainedQueue()
	line.Block(false)
	equal(t, "replies", len(r.replies(task)), 1)
}

// The queue was made anew, and has another message under the sequence that the record of a run names:
// the run has none all the same.
func TestTheSweepFindsARunWhoseSequenceIsAnothersMessage(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for _, entity := range []string{"agent.other", reviewer} {
		t.Run(entity, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t).shortLeases()
			line, g := natstest.NewCable(t), newGate(t)
			r.serve(r.over(line), mesh.Agent{Handler: g})
			client := r.client()
			task := newTask(reviewer, "code.review", `{"n":7}`)
			seq := r.submit(client, task).Seq
			within(t, "the task", g.entered)
			eventually(t, "it is claimed", func() bool { return r.begun(task) != nil })
			line.Block(true)
			if err := r.js(r.nc).DeleteStream(ctxFor(t), jetstream.StreamWork); err != nil {
				t.Fatal(err)
			}
			if _, err := jetstream.Apply(ctxFor(t), r.js(r.nc), jetstream.Options{Map: r.m}); err != nil {
				t.Fatal(err)
			}
			other := newTask(entity, "code.review", `{"n":8}`)
			equal(t, "the sequence", r.submit(client, other).Seq, seq)

			open := newGate(t) // it keeps the other task in the queue, if it gets it
			r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Sweep = 50 * time.Millisecond }), mesh.Agent{Concurrency: 2, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				if task.Envelope.ID == other.ID {
					return open.Handle(ctx, task)
				}
				return task.Envelope.Payload, nil
			})})
			reply, err := r.result(client, task)
			open.open()
			line.Block(false)
			if err != nil || string(reply.Payload) != `{"n":7}` {
				t.Fatalf("result %v, %v", reply, err)
			}
		})
	}
}

// A run whose message is gone, but whose owner lives, is left alone.
func TestTheSweepLeavesLivingOwnersAlone(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	acks := r.listen("$JS.ACK.AEE_WORK.>")
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	if _, err := r.nc.Request(within(t, "a sign of life", acks).Subject, []byte("+ACK"), patience); err != nil {
		t.Fatal(err)
	}
	pings := r.listen("$SRV.PING.agent-reviewer.>")
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Sweep = 20 * time.Millisecond }), mesh.Agent{Handler: echo})
	for range 3 {
		within(t, "a sweep that asks", pings)
	}
	g.open()
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	equal(t, "epoch", r.record(task).Mesh.Epoch, uint64(1))
}

func TestNothingIsLostWhenTheServerRestarts(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g, Concurrency: 2})
	client := r.client()
	var tasks []*envelope.Envelope
	for i := range 6 {
		tasks = append(tasks, newTask(reviewer, "code.review", fmt.Sprintf(`{"n":%d}`, i)))
		r.submit(client, tasks[i])
	}
	within(t, "a task", g.entered)
	within(t, "a task", g.entered)
	r.srv.Close()
	g.open() // the handlers return while no server is there
	r.srv = natstest.Restart(t, r.srv)
	for _, task := range tasks {
		reply, err := r.result(client, task)
		if err != nil || string(reply.Payload) != string(task.Payload) {
			t.Errorf("result %v, %v", reply, err)
		}
		eventually(t, "the reply is stored", func() bool { return len(r.replies(task)) > 0 })
		equal(t, "replies", len(r.replies(task)), 1)
		equal(t, "status", r.record(task).Doc.Status, aaif.RunCompleted)
	}
	r.drainedQueue()
}

// A commit outlasts an outage also where the connection buffers nothing meanwhile, and
// leaves no copies of its record in the buffer.
func TestACommitOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	const size = 64 << 10
	for name, buffer := range map[string]int{"no buffer": -1, "a buffer": 8 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			nc := natstest.Conn(t, r.srv, nats.ReconnectBufSize(buffer))
			s := newStepper(t, 1)
			r.serve(r.laneOn(nc, mesh.Config{}), mesh.Agent{Handler: s})
			client, task := r.client(), newTask(reviewer, "code.review", `{"long":"`+strings.Repeat("x", size)+`"}`)
			r.submit(client, task)
			within(t, "the task", s.entered)
			eventually(t, "it is claimed", func() bool { return r.begun(task) != nil })
			r.srv.Close()
			eventually(t, "the connection is lost", func() bool { return !nc.IsConnected() })
			s.next <- struct{}{}
			select {
			case err := <-s.outcome:
				t.Errorf("the commit returned %v during the outage", err)
			case <-time.After(200 * time.Millisecond):
			}
			if n, _ := nc.Buffered(); n > size {
				t.Errorf("%d bytes are buffered", n)
			}
			r.srv = natstest.Restart(t, r.srv)
			if _, err := r.result(client, task); err != nil {
				t.Error(err)
			}
			equal(t, "times that the handler was entered again", len(s.entered), 0)
		})
	}
}

// A durable call that waits for the server longer than the skew bound is not stale when it is sent,
// and no earlier copy of it is stored first.
func TestACallThatWaitsForTheServerIsNotStale(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	const skew = 3 * time.Second
	for _, recorded := range []bool{false, true} { // when the connection is lost
		t.Run(fmt.Sprintf("recorded=%t", recorded), func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			r.serve(r.lane(mesh.Config{Skew: skew}), mesh.Agent{Entity: helper, Handler: echo})
			nc, called := natstest.Conn(t, r.srv), make(chan struct{})
			lose := func() {
				r.srv.Close()
				eventually(t, "the connection is lost", func() bool { return !nc.IsConnected() })
				close(called)
			}
			r.serve(r.laneOn(nc, mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				call := mesh.Call{To: helper, Key: "one", Payload: task.Envelope.Payload}
				if recorded {
					call.Begun = func(string, bool) { lose() }
				} else {
					_, _ = task.Call(ctx, mesh.Call{To: helper, Key: "none", Payload: json.RawMessage(`{}`)}) // so that the lane is known
					lose()
				}
				a, err := task.Call(ctx, call)
				if err != nil {
					return nil, err
				}
				return a.Envelope.Payload, nil
			})})
			r.hears(helper)
			client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
			r.submit(client, task)
			within(t, "the call", called)
			up := time.Now().Add(skew + 500*time.Millisecond)
			eventually(t, "an outage as long as the bound", func() bool { return time.Now().After(up) })
			r.srv = natstest.Restart(t, r.srv)
			if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
				t.Errorf("%v, %v", reply, err)
			}
		})
	}
}

// At each point of the commit order the worker is cut off for good. The worker that
// comes next finishes, the handler's outcome is not computed twice once it is
// stored, and there is one reply.
func TestAWorkerMayDieAtEveryPoint(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for _, late := range []bool{false, true} { // the claim is written at once, or with the first step
		for _, point := range []mesh.Point{
			mesh.PointDelivered, mesh.PointClaimed, mesh.PointBeforeCommit, mesh.PointAfterCommit,
			mesh.PointBeforeTerminal, mesh.PointAfterTerminal, mesh.PointAnnounced, mesh.PointReplied, mesh.PointAcked,
		} {
			t.Run(fmt.Sprintf("%s,late=%t", point, late), func(t *testing.T) {
				t.Parallel()
				r := newDurableRig(t).shortLeases()
				p := newPoints(t)
				at := p.hold(point)
				handler := func(who string) mesh.Handler {
					return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
						run := task.Run()
						if len(run.View().Mesh.Loop) == 0 {
							if err := run.Commit(ctx, state.Step{Kind: state.StepHandler, Name: "one"}, func(c *state.Checkpoint) error {
								c.Mesh.Loop = json.RawMessage(fmt.Sprintf(`{"by":%q}`, who))
								return nil
							}); err != nil {
								return nil, err
							}
						}
						return run.View().Mesh.Loop, nil
					})
				}
				line := natstest.NewCable(t)
				first := r.serve(r.over(line, observing(p)), mesh.Agent{Handler: handler("first")})
				if late {
					r.aged()
				}
				client := r.client()
				task := newTask(reviewer, "code.review", `{}`)
				r.submit(client, task)
				release := within(t, "the point", at)
				line.Block(true)
				r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: handler("heir")})
				reply, err := r.result(client, task)
				if err != nil {
					t.Fatal(err)
				}
				r.drainedQueue()
				// The step belongs to the owner that committed it.
				want := `{"by":"first"}`
				switch point {
				case mesh.PointDelivered, mesh.PointClaimed, mesh.PointBeforeCommit:
					want = `{"by":"heir"}`
				}
				equal(t, "result", string(reply.Payload), want)
				close(release)
				line.Block(false)
				if err := first.end(); err != nil { // it has done all that it still could
					t.Error(err)
				}
				equal(t, "replies", len(r.replies(task)), 1)
				equal(t, "status", r.record(task).Doc.Status, aaif.RunCompleted)
			})
		}
	}
}

// An answer of the server that is lost, as where it is restarted, does not end a wait for
// a result.
func TestALostAnswerDoesNotEndTheWaitForAResult(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(r.client(), task)
	if _, err := r.result(r.client(), task); err != nil {
		t.Fatal(err)
	}
	nc := natstest.Conn(t, r.srv)
	var lost atomic.Int32
	if _, err := nc.Subscribe("lost.>", func(m *nats.Msg) {
		if strings.HasPrefix(m.Subject, "lost.DIRECT.GET.") && lost.Add(1) == 1 {
			return
		}
		_ = nc.PublishMsg(&nats.Msg{Subject: "$JS.API." + strings.TrimPrefix(m.Subject, "lost."), Reply: m.Reply, Header: m.Header, Data: m.Data})
	}); err != nil {
		t.Fatal(err)
	}
	js, err := natsjs.NewWithAPIPrefix(nc, "lost")
	if err != nil {
		t.Fatal(err)
	}
	client := r.lane(mesh.Config{Entity: ada}, func(d *mesh.Durable) { d.Replies = jetstream.NewReplies(js, r.m) })
	reply, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: true})
	if err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
	if lost.Load() < 2 {
		t.Errorf("%d questions, want one that is lost and another", lost.Load())
	}
}

// The lease is twenty seconds, and the agent's only slot is the dead worker's: the run goes on
// because another worker of the agent sees that the connection of its owner is gone.
func TestADeadWorkersRunGoesOnBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	long := func(nc *nats.Conn) func(*mesh.Durable) {
		return func(d *mesh.Durable) {
			d.Lease, d.Sweep, d.Slots = 20*time.Second, -1, slot.NewStore(r.js(nc), r.m, time.Hour)
		}
	}
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	agent := mesh.Agent{Handler: g, MeshConcurrency: 1}
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}, long(nc)), agent)
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	guards := r.listen("aee.ctl.>")
	r.submit(client, task)
	within(t, "the task", g.entered)
	eventually(t, "its claim is written", func() bool {
		c, err := client.Run(t.Context(), task.To, task.ID)
		return err == nil && c.Mesh.Epoch == 1
	})
	other := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(other, mesh.Config{}, long(other)), mesh.Agent{Handler: echo, MeshConcurrency: 1})
	eventually(t, "a guardian is asked by name", func() bool {
		for {
			select {
			case msg := <-guards:
				if e, err := envelope.Parse(msg.Data); err == nil && e.Intent == "mesh.task.guard" && strings.Contains(string(e.Payload), `"to":`) {
					return true
				}
			default:
				return false
			}
		}
	})
	nc.Close()
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	r.drainedQueue() // when the lease of the first message has ended
	equal(t, "replies", len(r.replies(task)), 1)
	equal(t, "owner and epoch", r.record(task).Mesh.Epoch, uint64(3)) // the claim, the guardian, the second claim
}

// A worker stands still, with a run and room for more. The server does not hand the run's
// message to the request for tasks that this worker had sent before: another worker gets it
// when one lease has ended.
func TestAWorkerThatStandsStillGetsNoMoreMessages(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	line, g := natstest.NewCable(t), newGate(t)
	acks := r.listen("$JS.ACK.AEE_WORK.>")
	r.serve(r.over(line), mesh.Agent{Handler: g, Concurrency: 3})
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	seq := r.submit(client, task).Seq
	within(t, "the task", g.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(task) != nil })
	for range 3 { // the requests of a worker without runs have ended
		r.leased(acks, seq)
	}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	r.leased(acks, seq)
	line.Block(true)
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
	equal(t, "epoch", r.record(task).Mesh.Epoch, uint64(2))
	last := ""
	for delivered := ""; delivered != "ack"; { // the message's acknowledgement is the last
		msg := within(t, "the acknowledgement", acks)
		if f := strings.Split(msg.Subject, "."); f[5] == fmt.Sprint(seq) {
			last = f[4]
			if string(msg.Data) == "" || string(msg.Data) == "+ACK" {
				delivered = "ack"
			}
		}
	}
	equal(t, "deliveries", last, "2")
}

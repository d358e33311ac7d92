package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// gated is a store whose writes wait until the gate is open.
type gated struct {
	atOnce
	came chan struct{} // one for each write
	open chan struct{}
}

func (g *gated) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	g.came <- struct{}{}
	select {
	case <-g.open:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return g.RunStore.PutNoted(ctx, id, prev, data, note)
}

// A worker that stood still gets one message several times. What it is claiming it
// claims once. Finding D4 of the reliability review: two copies were claimed, and
// the second ended the run of a program with E_REPLAY.
func TestTwoCopiesOfOneMessageAreOneRun(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for where, copied := range map[string]func(r *durableRig, store *gated, g *gate, nak func()){
		"while it is claimed": func(r *durableRig, store *gated, g *gate, nak func()) {
			within(r.t, "the claim", store.came)
			nak()
			close(store.open)
			within(r.t, "the task", g.entered)
		},
		"while it runs": func(r *durableRig, store *gated, g *gate, nak func()) {
			close(store.open)
			within(r.t, "the task", g.entered)
			nak()
		},
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t).shortLeases()
			acks := r.listen("$JS.ACK.AEE_WORK.>")
			store, g := &gated{came: make(chan struct{}, 100), open: make(chan struct{})}, newGate(t)
			node := r.lane(mesh.Config{}, func(d *mesh.Durable) { store.RunStore, d.States = d.States, store })
			r.serve(node, mesh.Agent{Handler: g, Concurrency: 4})
			client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
			seq := r.submit(client, task).Seq
			copied(r, store, g, func() {
				if err := r.nc.Publish(r.leased(acks, seq), []byte("-NAK")); err != nil {
					t.Fatal(err)
				}
				// The worker has the second copy when it keeps that one leased.
				for !strings.HasPrefix(r.leased(acks, seq), "$JS.ACK.AEE_WORK.normal-agent=2Ereviewer.2.") {
				}
			})
			for range 3 { // by then another claim would have come through
				r.leased(acks, seq)
			}
			g.open()
			if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
				t.Errorf("result %v, %v", reply, err)
			}
			r.drainedQueue()
			equal(t, "handlers beside the first", len(g.entered), 0)
			equal(t, "epoch", r.record(task).Mesh.Epoch, uint64(1))
		})
	}
}

// A task is submitted again while it runs, after the time in which the server knows its
// Nats-Msg-Id: the run's record names its first message, so the second one is acknowledged.
// Another task under its id is refused at once.
func TestASecondMessageOfARunIsAckedWhileItRuns(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g, Concurrency: 4})
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(task) != nil })
	other := *task
	other.Payload = json.RawMessage(`{"n":2}`)
	for _, again := range []*envelope.Envelope{task, &other} {
		if err := r.nc.Publish("aee.work.normal."+reviewer, encode(t, again)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "only the first message is left", func() bool { return len(r.letters()) == 1 && r.queued() == 1 })
	g.open()
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
	r.drainedQueue()
	equal(t, "epoch", r.record(task).Mesh.Epoch, uint64(1))
}

// A run that this worker has claimed, and that finds no slot to go on in, goes to
// the next worker. Finding D6 of the reliability review: its message was given
// back, the worker kept the run, and no worker ran it.
func TestAClaimedRunThatFindsNoSlotGoesOn(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	acks := r.listen("$JS.ACK.AEE_WORK.>")
	at, g := newPoints(t), newGate(t)
	begun := make(chan struct{}, 10)
	r.serve(r.lane(mesh.Config{}, observing(at)), mesh.Agent{Concurrency: 2, MeshConcurrency: 1, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if string(task.Envelope.Payload) == `{"in":"the way"}` {
			return g.Handle(ctx, task)
		}
		begun <- struct{}{}
		if task.Run().Restored() {
			return task.Envelope.Payload, nil
		}
		<-task.Run().StopRequested()
		return nil, task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil)
	})})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	seq := r.submit(client, task).Seq
	within(t, "the task", begun)

	// It is to move, and cannot, because the worker there is connected and takes no offer.
	// Meanwhile another task takes its slot.
	r.listen("$SRV.PING.agent-reviewer.SILENT")
	moving := at.hold(mesh.PointOffer)
	if _, err := client.Command(ctxFor(t), reviewer, intents.MigrateTask{Target: intents.Target{ID: task.ID}, To: "SILENT"}); err != nil {
		t.Fatal(err)
	}
	release := within(t, "the move", moving)
	other := newTask(reviewer, "code.review", `{"in":"the way"}`)
	r.submit(client, other)
	within(t, "the other task", g.entered)
	close(release)
	for {
		ack := within(t, "the message to be given back", acks)
		if string(ack.Data) == "-NAK" && strings.Split(ack.Subject, ".")[5] == fmt.Sprint(seq) {
			break
		}
	}
	g.open()
	for _, e := range []*envelope.Envelope{other, task} {
		if _, err := r.result(client, e); err != nil {
			t.Error(err)
		}
	}
	r.drainedQueue()
}

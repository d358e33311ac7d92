package mesh_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// readings is a store that counts how often records are read.
type readings struct {
	jetstream.RunStore
	n atomic.Int64
}

func (s *readings) Get(ctx context.Context, id state.ID) (state.Record, error) {
	s.n.Add(1)
	return s.RunStore.Get(ctx, id)
}

// copied is a run of another platform.
func copied() *state.Checkpoint {
	return &state.Checkpoint{Doc: aaif.State{
		Standard: "SC-006", StateID: uuid.NewString(), AgentID: state.AgentID(reviewer), RunID: uuid.NewString(), CheckpointAt: state.Time(time.Now()),
		Status: aaif.RunPaused, Conversation: []aaif.Message{{Role: aaif.MessageUser, Content: "and now?"}},
	}}
}

// A run that was copied, or received from another platform, is read once when its message
// arrives. It is claimed over what was read.
func TestARunThatArrivesIsReadOnce(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	store, at := &readings{}, newPoints(t)
	delivered, claimed := at.hold(mesh.PointDelivered), at.hold(mesh.PointClaimed)
	r.serve(r.lane(mesh.Config{}, observing(at), func(d *mesh.Durable) { store.RunStore, d.States = d.States, store }), mesh.Agent{Handler: lastWord{}})
	client := r.client()
	receipt, err := client.Fork(ctxFor(t), copied(), state.ForkOf{})
	if err != nil {
		t.Fatal(err)
	}
	let := within(t, "the message", delivered)
	equal(t, "readings when the message has arrived", store.n.Load(), int64(1))
	close(let)
	let = within(t, "the claim", claimed)
	equal(t, "readings when the run is claimed", store.n.Load(), int64(1))
	close(let)
	if _, err := client.Result(ctxFor(t), reviewer, receipt.TaskID, mesh.ResultOptions{Follow: true}); err != nil {
		t.Error(err)
	}
}

// What was read when the message arrived is not believed any more if the run has changed since.
func TestARunThatChangesAfterItsArrivalIsReadAgain(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	at := newPoints(t)
	delivered := at.hold(mesh.PointDelivered)
	r.serve(r.lane(mesh.Config{}, observing(at)), mesh.Agent{Handler: lastWord{}})
	client := r.client()
	receipt, err := client.Fork(ctxFor(t), copied(), state.ForkOf{})
	if err != nil {
		t.Fatal(err)
	}
	let := within(t, "the message", delivered)
	target := intents.Target{ID: receipt.TaskID}
	if _, err := client.Command(ctxFor(t), reviewer, intents.PauseTask{Target: target}); err != nil {
		t.Fatal(err)
	}
	again := at.hold(mesh.PointDelivered)
	close(let)
	close(within(t, "the message again: the record may be about to change", again))
	rec, err := jetstream.NewStates(r.js(r.nc), r.m).Get(ctxFor(t), state.ID{Entity: reviewer, Run: receipt.Run})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := rec.Header(); err != nil || h.Status != aaif.RunPaused {
		t.Errorf("the run is %s, %v, and not paused", h.Status, err)
	}
	if _, err := client.Command(ctxFor(t), reviewer, intents.ResumeTask{Target: target}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Result(ctxFor(t), reviewer, receipt.TaskID, mesh.ResultOptions{Follow: true}); err != nil {
		t.Error(err)
	}
}

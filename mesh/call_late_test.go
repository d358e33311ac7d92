package mesh_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// lateCalls is a store in which a checkpoint that names a call waits for a later ts. The test hears
// when it is about to be stored.
type lateCalls struct {
	jetstream.RunStore
	stored chan time.Time
}

func (s *lateCalls) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	if h, err := state.ReadHeader(data); err == nil && h.Step == state.StepCall {
		for began := envelope.Now(); envelope.Now() == began; {
			<-time.After(time.Millisecond)
		}
		s.stored <- time.Now()
	}
	return s.RunStore.PutNoted(ctx, id, prev, data, note)
}

// A worker refuses a task whose ts is far from its clock. A call may wait for its checkpoint longer
// than that, so it is signed afterwards.
func TestALiveCallThatWaitsForItsCheckpointIsNotStale(t *testing.T) {
	t.Parallel()
	k, r := newKeys(t), newDurableRig(t)
	const helper = "agent.helper"
	received := make(chan *envelope.Envelope, 1)
	r.serve(r.nodeOn(r.nc, mesh.Config{Verifier: sign.Verifier{Ring: k.ring, Mode: sign.Required}}), mesh.Agent{Entity: helper, Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		received <- task.Envelope
		return json.RawMessage(`{}`), nil
	})})
	stored := make(chan time.Time, 1)
	r.serve(r.lane(mesh.Config{Signer: k.signer("lead", sign.Ed25519, reviewer), Verifier: sign.Verifier{Ring: k.ring}}, func(d *mesh.Durable) { d.States = &lateCalls{d.States, stored} }),
		mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			_, err := task.Call(ctx, mesh.Call{To: helper, Key: "one"})
			return json.RawMessage(`{}`), err
		})})
	client, task := r.lane(mesh.Config{Entity: ada, Verifier: sign.Verifier{Ring: k.ring}}), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	if reply, err := r.result(client, task); err != nil {
		t.Fatalf("%v, %v", reply, err)
	}
	sent, at := <-received, <-stored
	if ts, ok := sent.Time(); !ok || ts.Before(at.Truncate(time.Millisecond)) {
		t.Errorf("the ts is %s, and the checkpoint was stored at %s", sent.TS, at)
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh"
)

// A task that was signed elsewhere keeps what its signature covers: Send must
// not write timeout_ms or stream into its requires.
func TestSendLeavesASignedTaskAsItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	signer, key, err := sign.NewKey("ada", sign.Ed25519, ada)
	if err != nil {
		t.Fatal(err)
	}
	var ring sign.Ring
	if err := ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	r.serve(r.node(mesh.Config{Verifier: sign.Verifier{Ring: &ring, Mode: sign.Required}}), mesh.Agent{
		Entity: reviewer,
		Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			return task.Envelope.Payload, nil
		}),
	})
	task := envelope.New(envelope.TypeTask, ada, reviewer, "code.review", json.RawMessage(`{"n":1}`))
	if err := signer.Sign(task); err != nil {
		t.Fatal(err)
	}
	reply, err := r.node(mesh.Config{Entity: ada}).Send(t.Context(), task, mesh.SendOptions{OnStream: func(*envelope.Envelope) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if string(reply.Payload) != `{"n":1}` {
		t.Errorf("payload %s", reply.Payload)
	}
}

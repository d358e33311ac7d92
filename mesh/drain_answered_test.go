package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A handler that goes on after its task has timed out holds the drain up, but
// nothing is lost: the sender had its answer.
func TestDrainLosesNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	w := r.serve(r.node(mesh.Config{MaxTimeout: 50 * time.Millisecond, Drain: 50 * time.Millisecond}), mesh.Agent{
		Entity: reviewer,
		Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			<-release
			return json.RawMessage(`{}`), nil
		}),
	})
	defer close(release)
	_, err := r.node(mesh.Config{Entity: ada}).Send(t.Context(), envelope.New(envelope.TypeTask, ada, reviewer, "code.review", nil), mesh.SendOptions{})
	if !errors.Is(err, &envelope.Error{Code: envelope.CodeTimeout}) {
		t.Fatalf("Send: %v, want E_TIMEOUT", err)
	}
	if err := w.end(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

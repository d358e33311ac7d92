package mesh_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/mesh"
)

// What the mesh adds to a result is not for those who asked in plain text.
func TestAskAnswersWithTheTextBesideReservedMembers(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"text":"hi"}`: "hi",
		`{"text":"hi","usage":{"input_tokens":1},"references":[]}`:    "hi",
		`{"text":"hi","swarm":{"winner":"a"},"decision_evidence":{}}`: "hi",
		`{"text":"hi","lang":"en"}`:                                   `{"text":"hi","lang":"en"}`,
		`{"text":null}`:                                               `{"text":null}`,
		`{"usage":{}}`:                                                `{"usage":{}}`,
	} {
		t.Run(payload, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			node := r.node(mesh.Config{})
			r.serve(node, mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
				return json.RawMessage(payload), nil
			})})
			if got, err := node.Ask(t.Context(), reviewer, "hello"); err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}

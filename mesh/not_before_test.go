package mesh_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A constraint that cannot be kept, or read, is refused and not ignored: a live
// task that is to begin later would begin at once.
func TestNotBeforeIsKeptOrRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(streamFive)})
	client := r.client()
	for requires, want := range map[string]envelope.Code{
		`{"not_before":"2999-01-01T00:00:00Z"}`: envelope.CodeRequires,
		`{"not_before":"soon"}`:                 envelope.CodeRequires,
		`{"not_before":5}`:                      envelope.CodeRequires,
		`{"not_before":"2020-01-01T00:00:00Z"}`: "",
		`{"not_before":null}`:                   "",
	} {
		_, err := client.Send(t.Context(), requiring(newTask(reviewer, "test.live", `{}`), requires), mesh.SendOptions{})
		if codeOf(err) != want {
			t.Errorf("live, %s: %v, want %s", requires, err, want)
		}
	}
	for _, requires := range []string{`{"not_before":"soon"}`, `{"not_before":5}`, `{"timeout_ms":"soon"}`, `{"stream":5}`, `{"min_confidence":7}`} {
		task := requiring(newTask(reviewer, "test.durable", `{}`), requires)
		r.submit(client, task)
		if _, err := r.result(client, task); codeOf(err) != envelope.CodeRequires {
			t.Errorf("durable, %s: %v", requires, err)
		}
	}
}

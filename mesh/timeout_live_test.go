package mesh_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A live task may take as long as its sender, its agent and the node permit: the shortest of the
// three.
func TestALiveTaskMayTakeTheShortestOfItsTimeouts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		asked       string
		agent, most time.Duration
		want        time.Duration
	}{
		"as its sender asks":    {`{"timeout_ms":60000}`, time.Hour, 2 * time.Hour, time.Minute},
		"as its agent may take": {`{"timeout_ms":86400000}`, time.Hour, 2 * time.Hour, time.Hour},
		"as the node permits":   {`{"timeout_ms":86400000}`, 3 * time.Hour, 2 * time.Hour, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			type limits struct {
				timeout time.Duration
				within  bool // its context ends by then
			}
			got := make(chan limits, 1)
			r.serve(r.node(mesh.Config{MaxTimeout: test.most}), mesh.Agent{Timeout: test.agent, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				deadline, ok := ctx.Deadline()
				got <- limits{task.Requires.Timeout, ok && time.Until(deadline) <= test.want}
				return json.RawMessage(`{}`), nil
			})})
			if reply := r.request(requiring(newTask(reviewer, "code.review", `{}`), test.asked)); reply.Type != envelope.TypeResult {
				t.Fatalf("%s", reply.Payload)
			}
			equal(t, "limits", <-got, limits{test.want, true})
		})
	}
}

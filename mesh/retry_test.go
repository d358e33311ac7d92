package mesh_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A failure that no other attempt would mend, or for which no time is left, is answered at once.
// It is no dead letter, as the retries are not used up.
func TestWhatIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		agent    mesh.Agent
		requires string
		fails    error // nil: when its time is over
		code     envelope.Code
	}{
		"no time is left": {
			agent:    mesh.Agent{Retry: mesh.RetryPolicy{Max: 3, Backoff: mesh.BackoffFixed, Base: 4 * time.Hour, Cap: 4 * time.Hour}},
			requires: `{"timeout_ms":3600000}`, fails: envelope.Errorf(envelope.CodeUnavailable, "not now"), code: envelope.CodeUnavailable,
		},
		"the time that its agent gives it is over": {
			agent:    mesh.Agent{Timeout: 300 * time.Millisecond, Retry: mesh.RetryPolicy{Max: 3, Base: 1}},
			requires: `{}`, code: envelope.CodeTimeout,
		},
		"it would fail again": {
			agent:    mesh.Agent{},
			requires: `{}`, fails: envelope.Errorf(envelope.CodeDenied, "no"), code: envelope.CodeDenied,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			begun := make(chan struct{}, 100)
			test.agent.Handler = mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
				begun <- struct{}{}
				if test.fails == nil {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil, test.fails
			})
			r.serve(r.lane(mesh.Config{}), test.agent)
			client, task := r.client(), requiring(newTask(reviewer, "code.review", `{}`), test.requires)
			r.submit(client, task)
			if _, err := r.result(client, task); codeOf(err) != test.code {
				t.Errorf("it fails with %v", err)
			}
			r.drainedQueue()
			equal(t, "attempts", len(begun), 1)
			for letter, err := range r.dead().List(ctxFor(t), reviewer) {
				t.Errorf("a dead letter: %+v, %v", letter, err)
			}
		})
	}
}

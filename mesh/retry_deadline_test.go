package mesh_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// A call without an answer in time fails with a retryable error. The pause
// before another attempt would outlast the task: its sender hears of it now, and
// nothing is left for the operator to try again.
func TestAPauseThatOutlastsTheTaskIsNotBegun(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	slow := mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	failing := mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "no luck")
	})
	retry := mesh.RetryPolicy{Max: 5, Backoff: mesh.BackoffFixed, Base: time.Hour, Cap: time.Hour}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: slow, Retry: retry})
	r.hears(helper)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "one"}, nil), Retry: retry})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: reviewer, Handler: failing, Retry: retry})
	events := r.events()
	client := r.client()
	for _, c := range []struct {
		to, timeout string
		code        envelope.Code
	}{{lead, `{"timeout_ms":1000}`, envelope.CodeTimeout}, {reviewer, `{"timeout_ms":600000}`, envelope.CodeUnavailable}} {
		var task *envelope.Envelope
		eventually(t, "a run ends", func() bool { // on a busy machine a task may end before it begins
			task = requiring(newTask(c.to, "lead.work", `{}`), c.timeout)
			r.submit(client, task)
			if _, err := r.result(client, task); codeOf(err) != c.code {
				t.Fatalf("%s: %v, want %s", c.to, err, c.code)
			}
			return r.begun(task) != nil
		})
		equal(t, "attempts of "+c.to, r.record(task).Mesh.Attempt, 0)
	}
	for l, err := range r.dead().List(ctxFor(t), "") {
		t.Errorf("dead letter %+v, %v", l, err)
	}
	r.drainedQueue()
	settle(t, r.nc)
	for _, msg := range drained(events) {
		if e := parse(t, msg.Data); e.Intent == intents.TaskRetrying {
			t.Errorf("told that it retries: %s", e.Payload)
		}
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// twoMiB is a payload that is larger than envelopes are by default.
var twoMiB = `{"text":"` + strings.Repeat("x", 2<<20) + `"}`

// newLargeRig is a mesh whose server takes messages of 8 MiB.
func newLargeRig(t *testing.T) *durableRig {
	t.Helper()
	natstest.Heavy(t)
	return (&durableRig{rig: rigWith(t, natsd.Config{JetStream: true, MaxPayload: 8 << 20})}).under("")
}

// committing commits one step, and then answers with payload.
func committing(payload string) mesh.HandlerFunc {
	return func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error { c.Mesh.Loop = json.RawMessage(`{}`); return nil })
		return json.RawMessage(payload), err
	}
}

func TestALargeResultOfARunWithCheckpoints(t *testing.T) {
	t.Parallel()
	r := newLargeRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: committing(twoMiB)})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	reply, err := r.result(client, task)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "bytes of the result", len(reply.Payload), len(twoMiB))
	r.drainedQueue()
}

func TestALargeTaskIsDelegated(t *testing.T) {
	t.Parallel()
	r := newLargeRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		return task.Delegate(ctx, mesh.Delegation{To: helper, Payload: json.RawMessage(twoMiB)})
	})})
	got := make(chan int, 10)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		got <- len(task.Envelope.Payload)
		return json.RawMessage(`{}`), nil
	})})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	equal(t, "bytes of the delegated payload", within(t, "the delegated task", got), len(twoMiB))
	r.drainedQueue()
}

func TestARunWithALargeTaskIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	r := newLargeRig(t)
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s})
	client, task := r.client(), newTask(reviewer, "code.review", twoMiB)
	r.submit(client, task)
	within(t, "the task", s.entered)
	r.command(client, intents.PauseTask{Target: target(task)})
	s.next <- struct{}{}
	within(t, "the commit", s.outcome)
	r.drainedQueue()
	if out := r.command(client, intents.ResumeTask{Target: target(task)}); !out.Resumed {
		t.Errorf("answer %+v", out)
	}
	within(t, "the task again", s.entered)
	s.next <- struct{}{}
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
}

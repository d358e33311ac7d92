package mesh_test

import (
	"fmt"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A live task of an asynchronous agent waits in the queue, and has no record yet. Its cancel is a live one,
// too: it is noted, so that the task ends when a place is free.
func TestALiveCancelOfAJobThatWaitsEndsIt(t *testing.T) {
	t.Parallel()
	for from, ends := range map[string]bool{ada: true, reviewer: true, "human.eve": true, "agent.other": false} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			jobs := newGate(t)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Async: true, Concurrency: 1, Handler: jobs})
			client := r.client()
			r.submit(client, newTask(reviewer, "code.review", `{}`))
			within(t, "the task that keeps the agent busy", jobs.entered)
			task := newTask(reviewer, "code.review", `{}`)
			if reply := parse(t, r.requestRaw(reviewer, encode(t, task), nil).Data); reply.Type != envelope.TypeResult {
				t.Fatalf("the live task: %s", reply.Payload)
			}
			cancel := cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID))
			cancel.From = from
			within(t, "the answer to the cancel", r.control(cancel))
			jobs.open()
			if _, err := r.result(client, task); (codeOf(err) == envelope.CodeCancelled) != ends {
				t.Errorf("the job ended with %v", err)
			}
			r.drainedQueue()
			if began := len(jobs.entered) == 1; began == ends {
				t.Errorf("the job began: %v", began)
			}
		})
	}
}

// A live cancel that may not be noted, or that is of a task of another sender, is not answered.
func TestALiveCancelOfAnAsynchronousAgentIsNotRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	jobs := newGate(t)
	w := r.serve(r.lane(mesh.Config{}), mesh.Agent{Async: true, Concurrency: 1, Handler: jobs})
	begun := newTask(reviewer, "code.review", `{}`)
	r.submit(r.client(), begun)
	within(t, "the task that keeps the agent busy", jobs.entered)
	of := func(task *envelope.Envelope, from string) *envelope.Envelope {
		cancel := cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID))
		cancel.From = from
		return cancel
	}
	others := r.control(of(begun, "agent.other"))
	never := newTask(reviewer, "code.review", `{}`)
	for range 8 {
		within(t, "the answer to a cancel", r.control(of(never, ada)))
	}
	ninth := r.control(of(never, ada))
	jobs.open()
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	settle(t, r.nc)
	equal(t, "answers to another sender", len(others), 0)
	equal(t, "answers to a cancel too many", len(ninth), 0)
}

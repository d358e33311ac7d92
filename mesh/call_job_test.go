package mesh_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// A durable run calls an asynchronous agent over the live lane, and the job waits in the agent's
// queue. When the run is cancelled, the job is cancelled too: it never begins.
func TestAJobThatWaitsIsCancelledWithTheRunThatCalled(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	jobs := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Async: true, Concurrency: 1, Handler: jobs})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "1", Live: true}, nil)})
	r.hears(helper, lead)
	client := r.client()
	first := newTask(helper, "helper.work", `{}`)
	r.submit(client, first)
	within(t, "the task that keeps the agent busy", jobs.entered)
	task := newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	eventually(t, "the job is in the run's record", func() bool {
		c := r.begun(task)
		return c != nil && len(c.Mesh.Calls) == 1 && c.Mesh.Calls[0].Job
	})
	if _, err := client.Command(ctxFor(t), lead, intents.CancelTask{ID: task.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeCancelled {
		t.Fatalf("the run ended with %v", err)
	}
	eventually(t, "the cancel is noted for the job", func() bool { return len(r.openRuns(helper)) == 2 })
	jobs.open()
	r.drainedQueue()
	equal(t, "jobs that began", len(jobs.entered), 0)
}

package mesh_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// Tasks and their pauses waited for a worker. The worker that comes obeys before it begins.
func TestAPauseThatWaitedComesBeforeItsTask(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client := r.client()
	tasks := make([]*envelope.Envelope, 8)
	for i := range tasks {
		tasks[i] = newTask(reviewer, "code.review", `{}`)
		r.submit(client, tasks[i])
	}
	for _, task := range tasks {
		go func() { _, _ = client.Command(ctxFor(t), reviewer, intents.PauseTask{Target: target(task)}) }()
	}
	eventually(t, "the pauses wait", func() bool { return r.queued() == uint64(2*len(tasks)) })
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g, Concurrency: len(tasks)})
	r.drainedQueue()
	for _, task := range tasks {
		equal(t, "status", r.record(task).Doc.Status, aaif.RunPaused)
	}
	select {
	case <-g.entered:
		t.Error("a handler has begun")
	default:
	}
}

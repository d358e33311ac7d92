package mesh_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
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

// A worker that has ended a live task answers the cancel, whatever becomes of a durable run of
// the same corr whose owner is silent.
func TestTheEndOfALiveTaskIsAnsweredBesideASilentRun(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: willing{g}, Concurrency: 2})
	client := r.client()
	live, stored := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	stored.Corr = live.Corr
	c := state.New(reviewer, stored.ID, "")
	c.Mesh.Task, c.Mesh.Owner, c.Doc.Status = encode(t, stored), "SILENT", aaif.RunRunning
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.NewStates(r.js(r.nc), r.m).Put(ctxFor(t), c.ID(), 0, data); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := client.Send(ctxFor(t), live, mesh.SendOptions{}); ended <- err }()
	within(t, "the live task", g.entered)
	reply, err := client.TryCommand(ctxFor(t), mesh.NewCommand(ada, reviewer, intents.CancelTask{Corr: live.Corr}))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "cancelled", member(t, reply.Payload, "cancelled"), "true")
	equal(t, "code", codeOf(<-ended), envelope.CodeCancelled)
}

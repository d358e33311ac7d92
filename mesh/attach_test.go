package mesh_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

// Finding D2 of the reliability review: a worker that was there before the streams
// took no durable task for its whole life.
func TestAWorkerJoinsTheDurableLaneWhenItsStreamsCome(t *testing.T) {
	t.Parallel()
	r := &durableRig{rig: rigWith(t, natsd.Config{JetStream: true})}
	ready := make(chan struct{})
	node := r.lane(mesh.Config{}, func(d *mesh.Durable) {
		d.Ready, d.NotReady = ready, func() error { return errors.New("the server has no AEE_WORK") }
	})
	// The mesh's limit needs slots, and those are with the streams.
	w := r.serve(node, mesh.Agent{Handler: echo, Async: true, MeshConcurrency: 1})

	live := newTask(reviewer, "code.review", `{"n":1}`)
	if reply := r.request(live); string(reply.Payload) != `{"n":1}` {
		t.Errorf("a live task was answered %s %s", reply.Type, reply.Payload)
	}
	health := r.request(newTask(reviewer, intents.StatusHealth, `{}`)).Payload
	if details := member(t, health, "details"); member(t, health, "status") != `"healthy"` ||
		!strings.Contains(details, `"state":"waiting"`) || !strings.Contains(details, "the server has no AEE_WORK") {
		t.Errorf("health %s", health)
	}
	if meta := r.durableMeta(node); meta != mesh.DurableWaiting {
		t.Errorf("metadata say %q", meta)
	}

	if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{Map: r.m}); err != nil {
		t.Fatal(err)
	}
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":2}`)
	r.submit(client, task)
	close(ready)
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":2}` {
		t.Errorf("the durable task was answered %v, %v", reply, err)
	}
	if meta := r.durableMeta(node); meta != mesh.DurableOn {
		t.Errorf("metadata say %q", meta)
	}
	job := r.request(newTask(reviewer, "code.review", `{"n":3}`))
	if member(t, job.Payload, "job_id") == "" {
		t.Errorf("an asynchronous agent answered %s", job.Payload)
	}
	w.end()
}

// A worker that is stopped while it waits for the streams ends as others do.
func TestAWorkerThatWaitsForTheDurableLaneCanBeStopped(t *testing.T) {
	t.Parallel()
	r := &durableRig{rig: newRig(t)}
	node := r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Ready = make(chan struct{}) })
	r.serve(node, mesh.Agent{Handler: echo}).end()
}

// durableMeta is what the only worker's metadata say of durable tasks.
func (r *durableRig) durableMeta(node *mesh.Node) string {
	r.t.Helper()
	found, err := node.Discover(ctxFor(r.t), reviewer, patience)
	if err != nil || len(found) != 1 {
		r.t.Fatalf("%d workers, %v", len(found), err)
	}
	return found[0].Info.Metadata[mesh.MetaDurable]
}

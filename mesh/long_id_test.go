package mesh_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// A header that names a run whose id no store accepts is ignored, as one that names an unknown run.
func TestAMessageOfARunThatCannotBeIsAnOrdinaryTask(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	if err := r.nc.PublishMsg(&nats.Msg{Subject: "aee.work.normal." + reviewer, Data: encode(t, task), Header: nats.Header{"Aee-Run": {strings.Repeat("x", state.MaxRun+1)}}}); err != nil {
		t.Fatal(err)
	}
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("%v, %v", reply, err)
	}
}

// The run of a task is found by the task's id, also by one that is too long for the id of a run.
func TestARunIsFoundByALongID(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	task.ID = strings.Repeat("x", state.MaxRun+1)
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	if c, err := client.Run(ctxFor(t), reviewer, task.ID); err != nil || c.Mesh.TaskID != task.ID {
		t.Errorf("%v, %v", c, err)
	}
}

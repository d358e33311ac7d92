package mesh_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// The worker of another agent, which knows the id of a run, publishes the ids of its
// stream first, to a reply subject of its own. All is stored nevertheless.
func TestAStreamIsStoredWhateverIDsOthersHaveTaken(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`)
	js := r.js(r.nc)
	for seq := range 10 {
		if _, err := js.PublishMsg(ctxFor(t), &nats.Msg{Subject: "aee.reply.agent.other.x", Header: nats.Header{natsjs.MsgIDHeader: {fmt.Sprint(state.RunID(reviewer, task.ID), ".", seq)}}}); err != nil {
			t.Fatal(err)
		}
	}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(streamFive)})
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	r.drainedQueue() // so the reply is stored, too
	var kinds []envelope.Type
	for _, e := range r.replies(task) {
		kinds = append(kinds, e.Type)
	}
	s := envelope.TypeStream
	equal(t, "what is stored", fmt.Sprint(kinds), fmt.Sprint([]envelope.Type{s, s, s, s, s, envelope.TypeResult}))
}

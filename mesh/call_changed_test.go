package mesh_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// waitingFor is how many tasks of an entity the queue holds.
func (r *durableRig) waitingFor(entity string) (n int) {
	r.t.Helper()
	for _, err := range jetstream.NewQueue(r.js(r.nc), r.m).Peek(ctxFor(r.t), "normal", entity, 0) {
		if n++; err != nil {
			r.t.Fatal(err)
		}
	}
	return n
}

// A call is still in the receiver's queue when its caller crashes, and each later owner of the
// caller's run makes another payload for it, as a team does whose receiver has a new template. The
// receiver does one of the tasks, and its answer counts. A caller that may read the queue sends no
// second one.
func TestACallWhosePayloadChangesAfterACrash(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for _, c := range []struct {
		name   string
		fenced bool
		left   int // dead letters
	}{{"the queue can be read", false, 0}, {"the queue cannot be read", true, 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t).shortLeases()
			r.serving(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: echo})()
			r.hears(helper)
			client, task := r.client(), newTask(lead, "lead.work", `{}`)
			r.submit(client, task)
			for n := 1; n <= 3; n++ {
				node, begun := r.lane(mesh.Config{}, func(d *mesh.Durable) {
					if c.fenced {
						d.Queue.Fence()
					}
				}), make(chan struct{}, 10)
				r.serve(node, mesh.Agent{Entity: lead, Handler: calling(mesh.Call{
					To: helper, Key: "one", Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)),
					Begun: func(string, bool) { begun <- struct{}{} },
				}, nil)})
				within(t, "the call", begun)
				if want := 2*n - 1; n == 1 || c.fenced {
					eventually(t, "the call is in the queue", func() bool { return r.waitingFor(helper) == want })
				}
				if c.fenced { // a user who may not read the queue sees its newest task only
					r.submit(client, newTask(helper, "helper.work", `{}`))
				}
				if n < 3 {
					node.Conn().Close() // as a crash, for the mesh
				}
			}
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: echo})
			reply, err := r.result(client, task)
			if err != nil {
				t.Fatal(err)
			}
			if got := canonical(t, reply.Payload); got != `{"n":1}` && (!c.fenced || got != `{"n":2}` && got != `{"n":3}`) {
				t.Errorf("result %s", got)
			}
			r.drainedQueue()
			left := 0
			for l, err := range r.dead().List(ctxFor(t), helper) {
				if left++; err != nil || l.Code != string(envelope.CodeReplay) {
					t.Errorf("dead letter %+v, %v", l, err)
				}
			}
			equal(t, "dead letters", left, c.left)
		})
	}
}

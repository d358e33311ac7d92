package mesh_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh"
)

// Where signatures are not required, an unsigned task with the id of a signed one that waits can
// overtake it. The sender of the signed one does not get the other's result for its own: it hears
// that the id is taken. A copy that differs in the signature alone is the same work, and is done once.
func TestAnUnsignedTaskThatOvertakesASignedOneGivesItNoResult(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, payload, want string }{
		{"another task", `{"n":666}`, ""},
		{"a copy", `{"n":1}`, `{"n":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := newKeys(t)
			r := newDurableRig(t)
			task := signed(t, k.signer("ada", sign.Ed25519, ada), durably(t, newTask(reviewer, "code.review", `{"n":1}`)))
			evil := task.Clone()
			evil.Sig, evil.Payload = nil, []byte(c.payload)
			g := newGate(t)
			r.serve(r.lane(mesh.Config{Verifier: k.verifier()}), mesh.Agent{Handler: g})
			if err := r.nc.Publish("aee.work.urgent."+reviewer, encode(t, evil)); err != nil {
				t.Fatal(err)
			}
			within(t, "the unsigned task", g.entered)
			client := r.lane(mesh.Config{Entity: ada, Verifier: k.verifier()})
			r.submit(client, task)
			g.open()
			reply, err := client.Await(ctxFor(t), task, mesh.ResultOptions{})
			switch {
			case c.want == "" && codeOf(err) != envelope.CodeReplay:
				t.Errorf("ada has %v, %v", reply, err)
			case c.want != "" && (err != nil || string(reply.Payload) != c.want):
				t.Errorf("ada has %v, %v", reply, err)
			}
			r.drainedQueue()
			equal(t, "tasks that began beside it", len(g.entered), 0)
		})
	}
}

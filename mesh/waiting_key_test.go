package mesh_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// later is the config of a worker whose only key becomes valid in an hour.
func later(k *keys, alg sign.Alg, entity string) mesh.Config {
	k.t.Helper()
	s := k.signer(entity, alg, entity)
	k.change(entity, func(key *sign.Key) { key.NotBefore = time.Now().Add(time.Hour) })
	return mesh.Config{Signer: s.Waiting(), Verifier: k.verifier()}
}

// A worker whose key is not valid yet transfers a run as one without a key.
func TestARunMovesBeforeTheKeyIsValid(t *testing.T) {
	t.Parallel()
	for _, alg := range []sign.Alg{sign.Ed25519, sign.HS256} {
		t.Run(string(alg), func(t *testing.T) {
			t.Parallel()
			m := newMovement(t, func(m *movement) {
				m.sourceConfig = later(newKeys(t), alg, reviewer)
				m.targetConfig = m.sourceConfig
			})
			m.source.speak(1)
			within(t, "a word", m.source.told)
			m.move(intents.MigrateAny)
			within(t, "the target", m.target.begun)
			m.finish("target")
		})
	}
}

// A caller whose key is not valid yet crashes, and its successor makes another payload for the call. It
// waits for the answer to the task that has begun, also if the key is valid by then.
func TestACallOfACallerWhoseKeyIsNotValidYet(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for name, valid := range map[string]bool{"and not then either": false, "and is valid then": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, k := newDurableRig(t).shortLeases(), newKeys(t)
			own := k.signer(lead, sign.Ed25519, lead)
			g, s := newGate(t), own.Waiting()
			r.serve(r.lane(mesh.Config{Verifier: k.verifier()}), mesh.Agent{Entity: helper, Handler: g})
			client, task := r.lane(mesh.Config{Entity: ada, Verifier: k.verifier()}), newTask(lead, "lead.work", `{}`)
			r.submit(client, task)
			for n := 1; n <= 2; n++ {
				node, begun := r.lane(mesh.Config{Signer: s, Verifier: k.verifier()}, func(d *mesh.Durable) { d.Queue.Fence() }), make(chan struct{}, 10)
				r.serve(node, mesh.Agent{Entity: lead, Handler: calling(mesh.Call{
					To: helper, Key: "one", Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)),
					Begun: func(string, bool) { begun <- struct{}{} },
				}, nil)})
				within(t, "the call", begun)
				if n == 1 {
					call := within(t, "the helper's task", g.entered)
					eventually(t, "the call's record", func() bool { return r.begun(call.Envelope) != nil })
					r.submit(client, newTask(helper, "helper.work", `{}`)) // the newest task of the queue is not the call
					node.Conn().Close()                                    // as a crash, for the mesh
				}
				if valid {
					s = own
				}
			}
			g.open()
			if _, err := r.result(client, task); err != nil {
				t.Fatal(err)
			}
			r.drainedQueue()
			for l, err := range r.dead().List(ctxFor(t), helper) {
				t.Errorf("dead letter %s: %s, %v", l.Code, l.Cause, err)
			}
		})
	}
}

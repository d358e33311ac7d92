package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// The chain of a delegated run was verified when the run began. The run goes on whatever becomes of
// the keys, and its answer goes to the sender of the original task.
func TestADelegatedRunOutlivesTheKeysOfItsChain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*keys){
		"expired": func(k *keys) { k.change("agent.a", func(k *sign.Key) { k.Expires = time.Now().Add(-time.Hour) }) },
		"revoked": func(k *keys) { k.change("agent.a", func(k *sign.Key) { k.Revoked = true }) },
		"removed": func(k *keys) { k.ring.Delete(sign.Local, "agent.a") },
	} {
		for _, then := range []string{"woken", "cancelled"} {
			t.Run(name+", "+then, func(t *testing.T) {
				t.Parallel()
				r, p := newDurableRig(t), newParty(t, true)
				parked := time.Hour
				if then == "woken" {
					parked = 50 * time.Millisecond
				}
				r.serve(r.lane(p.config(t, "agent.a")), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
				g := newGate(t)
				b := r.lane(p.config(t, "agent.b"), func(d *mesh.Durable) { d.Operators = []string{ada} })
				r.serve(b, mesh.Agent{Entity: "agent.b", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
					run := task.Run()
					if done := run.View().Mesh.Loop; len(done) > 0 {
						return done, nil
					}
					g.entered <- task
					<-g.release
					return nil, run.ParkUntil(ctx, mesh.Wake{At: time.Now().Add(parked)}, func(c *state.Checkpoint) error {
						c.Mesh.Loop = json.RawMessage(`{"done":1}`)
						return nil
					})
				})})
				r.hears("agent.b")
				client, task, events := r.lane(p.config(t, ada)), newTask("agent.a", "x.y.z", `{}`), r.events()
				r.submit(client, task)
				child := within(t, "agent.b has the task", g.entered).Envelope
				change(p.keys)
				g.open()
				want := aaif.RunCompleted
				if then == "cancelled" {
					for r.event(events, intents.TaskParked).From != "agent.b" {
					}
					out, err := client.Command(ctxFor(t), "agent.b", intents.CancelTask{Run: state.RunID("agent.b", child.ID), Reason: "enough"})
					if err != nil || !out.Cancelled {
						t.Fatalf("cancel: %+v, %v", out, err)
					}
					want = aaif.RunFailed
				}

				eventually(t, "the run ends", func() bool { return r.record(child).Terminal() })
				r.drainedQueue()
				equal(t, "status", r.record(child).Doc.Status, want)
				replies := r.replies(task)
				if len(replies) != 1 || replies[0].From != "agent.b" || replies[0].To != ada || replies[0].ReplyTo != task.ID {
					t.Errorf("the replies to the original task are %s", show(replies))
				}
				if stray := r.replies(child); len(stray) > 0 {
					t.Errorf("no sender waits for %s", show(stray))
				}
			})
		}
	}
}

// So it is if the worker dies, and another one finds the run by the message that began it.
func TestADelegatedRunOutlivesItsWorkerAndTheKeysOfItsChain(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for _, point := range []mesh.Point{mesh.PointAfterCommit, mesh.PointAfterTerminal} {
		for name, change := range map[string]func(*sign.Key){
			"expired": func(k *sign.Key) { k.Expires = time.Now() },
			"revoked": func(k *sign.Key) { k.Revoked = true },
		} {
			t.Run(fmt.Sprintf("%s %s", name, point), func(t *testing.T) {
				t.Parallel()
				r, p, at := newDurableRig(t).shortLeases(), newParty(t, true), newPoints(t)
				reached := at.hold(point)
				r.serve(r.lane(p.config(t, "agent.a")), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
				r.serve(r.lane(p.config(t, "agent.b")), mesh.Agent{Entity: "agent.b", Handler: handsTo("agent.c")})
				children := make(chan *envelope.Envelope, 8)
				last := mesh.Agent{Entity: "agent.c", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
					children <- task.Envelope
					return json.RawMessage(`{"done":1}`), task.Run().Commit(ctx, state.Step{Kind: state.StepHandler, Name: "one"}, nil)
				})}
				line := natstest.NewCable(t)
				config := p.config(t, "agent.c")
				first := r.serve(r.laneOn(natstest.Conn(t, r.srv, nats.SetCustomDialer(line)), config, observing(at)), last)
				r.hears("agent.b", "agent.c")
				client, task := r.lane(p.config(t, ada)), newTask("agent.a", "x.y.z", `{}`)
				r.submit(client, task)
				release := within(t, "the point", reached)
				line.Block(true)
				p.keys.change("agent.a", change)
				r.serve(r.lane(config), last)
				child := within(t, "agent.c has the task", children)
				eventually(t, "a reply", func() bool { return len(r.replies(task)) > 0 || len(r.replies(child)) > 0 })
				r.drainedQueue()
				replies := r.replies(task)
				if len(replies) != 1 || replies[0].Type != envelope.TypeResult || replies[0].From != "agent.c" || replies[0].ReplyTo != task.ID {
					t.Errorf("the replies to the original task are %s", show(replies))
				}
				if stray := r.replies(child); len(stray) > 0 {
					t.Errorf("no sender waits for %s", show(stray))
				}
				close(release)
				line.Block(false)
				if err := first.end(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

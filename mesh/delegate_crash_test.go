package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// At each point of the commit order the worker that hands on, or the one that
// takes over, is cut off for good. There is one answer all the same, and no work
// is done twice once it is stored.
func TestAWorkerMayDieAtEveryPointOfAHandOver(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for _, who := range []string{"agent.a", "agent.b"} {
		for _, point := range []mesh.Point{
			mesh.PointDelivered, mesh.PointClaimed, mesh.PointBeforeCommit, mesh.PointAfterCommit,
			mesh.PointBeforeTerminal, mesh.PointAfterTerminal, mesh.PointReplied, mesh.PointAcked,
		} {
			t.Run(fmt.Sprintf("%s %s", who, point), func(t *testing.T) {
				t.Parallel()
				r := newDurableRig(t).shortLeases()
				p := newPoints(t)
				at := p.hold(point)
				// step is one step of a run, done by the first worker that comes to it.
				step := func(ctx context.Context, task *mesh.Task, by string) (json.RawMessage, error) {
					run := task.Run()
					if len(run.View().Mesh.Loop) == 0 {
						if err := run.Commit(ctx, state.Step{Kind: state.StepHandler, Name: "one"}, func(c *state.Checkpoint) error {
							c.Mesh.Loop = json.RawMessage(fmt.Sprintf(`{"by":%q}`, by))
							return nil
						}); err != nil {
							return nil, err
						}
					}
					return run.View().Mesh.Loop, nil
				}
				hands := func(by string) mesh.Agent {
					return mesh.Agent{Entity: "agent.a", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
						payload, err := step(ctx, task, by)
						if err != nil {
							return nil, err
						}
						return task.Delegate(ctx, mesh.Delegation{To: "agent.b", Payload: payload, State: task.Run().View()})
					})}
				}
				takes := func(by string) mesh.Agent {
					return mesh.Agent{Entity: "agent.b", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
						if c, err := task.HandedState(ctx); err != nil || c == nil {
							return nil, fmt.Errorf("state: %v: %w", c, err)
						}
						own, err := step(ctx, task, by)
						if err != nil {
							return nil, err
						}
						return json.Marshal(map[string]json.RawMessage{"a": task.Input(), "b": own})
					})}
				}
				agents := map[string]func(by string) mesh.Agent{"agent.a": hands, "agent.b": takes}
				line := natstest.NewCable(t)
				first := r.serve(r.over(line, observing(p)), agents[who]("first"))
				for other, agent := range agents {
					if other != who {
						r.serve(r.lane(mesh.Config{}), agent("other"))
					}
				}
				r.hears("agent.b")
				client, task := r.client(), newTask("agent.a", "x.y.z", `{}`)
				r.submit(client, task)
				release := within(t, "the point", at)
				line.Block(true)
				r.serve(r.lane(mesh.Config{}), agents[who]("heir"))
				reply, err := r.result(client, task)
				if err != nil {
					t.Fatal(err)
				}
				r.drainedQueue()
				by := "first"
				switch point {
				case mesh.PointDelivered, mesh.PointClaimed, mesh.PointBeforeCommit:
					by = "heir"
				}
				a, b := by, "other"
				if who == "agent.b" {
					a, b = b, a
				}
				equal(t, "result", string(reply.Payload), fmt.Sprintf(`{"a":{"by":%q},"b":{"by":%q}}`, a, b))
				equal(t, "from", reply.From, "agent.b")
				close(release)
				line.Block(false)
				if err := first.end(); err != nil {
					t.Error(err)
				}
				equal(t, "replies", len(r.replies(task)), 1)
				c := r.record(task)
				equal(t, "status", c.Doc.Status, aaif.RunCompleted)
				child := newTask("agent.b", "x.y.z", `{}`)
				child.ID = c.Mesh.Handed.TaskID
				equal(t, "status there", r.record(child).Doc.Status, aaif.RunCompleted)
			})
		}
	}
}

// A task waits in the queue of a receiver that is not there, and the cancel of
// the first one reaches it.
func TestADurableHandOverWaitsForItsReceiver(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	w := r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: answersFor})
	r.hears("agent.b") // its lane stays
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
	client := r.client()
	task, other := newTask("agent.a", "x.y.z", `{}`), newTask("agent.a", "x.y.z", `{}`)
	events := r.events()
	for _, e := range []string{task.ID, other.ID} {
		one := task
		if e == other.ID {
			one = other
		}
		r.submit(client, one)
		ended := r.event(events, intents.TaskFinished)
		equal(t, "handed to", member(t, ended.Payload, "handed_to"), `"agent.b"`)
	}
	done := make(chan intents.CommandResult, 1)
	go func() {
		result, err := client.Command(ctxFor(t), "agent.a", intents.CancelTask{ID: other.ID})
		if err != nil {
			t.Error(err)
		}
		done <- result
	}()
	eventually(t, "the cancel is queued", func() bool { return r.queued() == 3 })
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: answersFor})
	if reply, err := r.result(client, task); err != nil || reply.From != "agent.b" {
		t.Errorf("result: %v, %v", reply, err)
	}
	within(t, "the cancel", done)
	r.drainedQueue()
}

// The receiver's subject has a subscriber that does not answer: it may
// be busy, or stand still. Its queue takes the task all the same, and who hands it
// on keeps no place for it.
func TestADurableTaskIsHandedToOneThatIsSilent(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	w := r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: answersFor})
	r.hears("agent.b") // its lane stays
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	r.listen("agent.b")
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
	client, task := r.client(), newTask("agent.a", "x.y.z", `{}`)
	events := r.events()
	r.submit(client, task)
	ended := r.event(events, intents.TaskFinished)
	equal(t, "handed to", member(t, ended.Payload, "handed_to"), `"agent.b"`)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: answersFor})
	if reply, err := r.result(client, task); err != nil || reply.From != "agent.b" {
		t.Errorf("result: %v, %v", show(reply), err)
	}
}

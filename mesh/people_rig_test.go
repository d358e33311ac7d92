package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// asking is an agent that asks people the same, and goes on when enough of them
// have answered. Its result is what became of each.
type asking struct {
	people  []string
	enough  int // 0: all
	timeout time.Duration
	more    map[string]json.RawMessage // of requires
	payload json.RawMessage            // of the questions; nil: the task's
	then    string                     // who is asked instead of one who did not answer
	parking func(*state.Checkpoint)    // changes the checkpoint with which the run parks
}

func (a asking) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	said := map[string]string{}
	var wake mesh.Wake
	ask := func(who string) error {
		c := mesh.Call{To: who, Key: "ask/" + who, Payload: task.Envelope.Payload, Requires: a.more}
		if a.payload != nil {
			c.Payload = a.payload
		}
		if who != a.then {
			c.Timeout = a.timeout
		}
		got, err := task.Call(ctx, c)
		var waits *mesh.PendingError
		var problem *envelope.Error
		switch {
		case errors.As(err, &waits):
			wake.On = append(wake.On, waits.Wait)
			return nil
		case err == nil:
			said[who] = string(got.Envelope.Payload)
			return nil
		case errors.As(err, &problem):
			said[who] = string(problem.Code) + ": " + problem.Message
			return problem
		}
		return err
	}
	for _, who := range a.people {
		err := ask(who)
		if isCode(err, envelope.CodeTimeout) && a.then != "" {
			err = ask(a.then)
		}
		if err != nil && !isCode(err, envelope.CodeTimeout) && !isCode(err, envelope.CodeDeclined) {
			return nil, err
		}
	}
	if len(wake.On) > 0 && (a.enough == 0 || len(said) < a.enough) {
		return nil, task.Run().ParkUntil(ctx, wake, func(c *state.Checkpoint) error {
			if a.parking != nil {
				a.parking(c)
			}
			c.Mesh.Plan = json.RawMessage(`{}`)
			return nil
		})
	}
	return json.Marshal(said)
}

func isCode(err error, code envelope.Code) bool {
	var e *envelope.Error
	return errors.As(err, &e) && e.Code == code
}

const bob, cleo, boss = "human.bob", "human.cleo", "human.boss"

// serving serves until the returned function is called.
func (r *durableRig) serving(node *mesh.Node, agent mesh.Agent) (stop func()) {
	r.t.Helper()
	w := r.serve(node, agent)
	return func() {
		w.stop()
		within(r.t, "Serve to return", w.done)
	}
}

// asked waits until a person is asked something.
func (r *durableRig) asked(n *mesh.Node, person string) *mesh.PersonTask {
	r.t.Helper()
	var ask *mesh.PersonTask
	eventually(r.t, person+" is asked", func() bool {
		asks, err := n.PersonTasks(ctxFor(r.t), person)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(asks) == 1 {
			ask = asks[0]
		}
		return ask != nil
	})
	return ask
}

// waits waits until the task's run is parked, and returns its checkpoint.
func (r *durableRig) waits(task *envelope.Envelope) (c *state.Checkpoint) {
	r.t.Helper()
	eventually(r.t, "the run waits", func() bool {
		c = r.begun(task)
		return c != nil && c.Doc.Status == aaif.RunAwaitingApproval
	})
	return c
}

func (r *durableRig) answer(n *mesh.Node, ask *mesh.PersonTask, payload string) {
	r.t.Helper()
	if err := n.AnswerPersonTask(ctxFor(r.t), ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(payload))); err != nil {
		r.t.Fatal(err)
	}
}

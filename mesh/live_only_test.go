package mesh_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// A node without stores refuses what needs them.
func TestANodeWithoutADurableLaneRefusesWhatNeedsIt(t *testing.T) {
	t.Parallel()
	node := newRig(t).node(mesh.Config{Entity: ada})
	task := newTask(reviewer, "code.review", `{}`)
	ask := &mesh.PersonTask{Task: newTask(ada, "person.ask", `{}`)}
	for what, call := range map[string]func() error{
		"Await":  func() error { _, err := node.Await(ctxFor(t), task, mesh.ResultOptions{}); return err },
		"Result": func() error { _, err := node.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{}); return err },
		"Perform": func() error {
			_, _, err := node.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
			return err
		},
		"Command": func() error {
			_, err := node.Command(ctxFor(t), reviewer, &intents.CancelTask{ID: task.ID})
			return err
		},
		"PersonTasks":      func() error { _, err := node.PersonTasks(ctxFor(t), ada); return err },
		"AnswerPersonTask": func() error { return node.AnswerPersonTask(ctxFor(t), ask, ask.Task.Reply(envelope.TypeResult, nil)) },
	} {
		if err := call(); err == nil {
			t.Errorf("%s succeeded", what)
		}
	}
}

// A command is for the durable lane, given as a value or by its address.
func TestCommandsByAddressAreDurableToo(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	heard, to := r.listen("aee.ctl."+reviewer), intents.Target{ID: envelope.NewID()}
	for _, cmd := range []intents.Command{
		intents.PauseTask{Target: to}, &intents.PauseTask{Target: to}, &intents.ResumeTask{Target: to}, &intents.SteerTask{Target: to, Text: "be kind"},
		&intents.SettleTask{Target: to, Outcome: intents.OutcomeFailed}, &intents.CancelTask{ID: to.ID},
	} {
		_, _ = r.client().Command(ctxFor(t), reviewer, cmd) // some of them are refused: there is no such task
		e := parse(t, within(t, "the command", heard).Data)
		equal(t, e.Intent, member(t, e.Payload, "durable"), "true")
	}
}

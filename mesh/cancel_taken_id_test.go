package mesh_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A worker has refused another message with the id of a task that waits. That is no answer to the
// task: a withdrawal stores one, also for a sender who asks later.
func TestAWithdrawalIsStoredBehindAnAnswerToAnother(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
	task := newTask(reviewer, "code.review", `{"n":1}`)
	if _, err := client.Submit(ctxFor(t), task, mesh.SubmitOptions{After: time.Hour}); err != nil {
		t.Fatal(err)
	}
	other := requiring(newTask(reviewer, "code.review", `{"n":2}`), `{"mesh":"another"}`)
	other.From, other.ID, other.Corr = "human.eve", task.ID, task.Corr
	stop := r.serving(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	if err := r.nc.Publish("aee.work.normal."+reviewer, encode(t, other)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "eve is answered", func() bool { return len(r.replies(task)) == 1 })
	r.drainedQueue()
	stop()
	if err := ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip"); err != nil || r.asleep() != 0 {
		t.Fatalf("%v; %d tasks are scheduled", err, r.asleep())
	}
	if n := len(r.replies(task)); n != 2 {
		t.Fatalf("%d replies are stored, of which one is to eve", n)
	}
	if _, err := client.Await(ctxFor(t), task, mesh.ResultOptions{}); codeOf(err) != envelope.CodeCancelled || !strings.Contains(err.Error(), "a slip") {
		t.Errorf("got %v", err)
	}
}

// Several messages with one id wait, of which all but one are forged. A withdrawal deletes all of them,
// and answers each task.
func TestAWithdrawalAnswersEachTaskOfAnID(t *testing.T) {
	t.Parallel()
	for name, withdraw := range map[string]func(*testing.T, *mesh.Node, *envelope.Envelope) error{
		"one": func(t *testing.T, ops *mesh.Node, task *envelope.Envelope) error {
			return ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip")
		},
		"all": func(t *testing.T, ops *mesh.Node, task *envelope.Envelope) error {
			n, err := ops.CancelAllQueued(ctxFor(t), task.To, "a slip")
			equal(t, "withdrawn", n, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
			task := newTask(reviewer, "code.review", `{"n":1}`)
			forge := func(from string) *envelope.Envelope {
				e := newTask(reviewer, "code.review", `{"n":2}`)
				e.From, e.ID, e.Corr = from, task.ID, task.Corr
				r.queue("normal", e)
				return e
			}
			first := forge("human.eve")
			r.submit(client, task)
			second := forge("human.mallory")
			r.queue("normal", second)
			equal(t, "queued", r.queued(), uint64(4))
			if err := withdraw(t, ops, task); err != nil || r.queued() != 0 {
				t.Fatalf("%v; %d tasks are queued", err, r.queued())
			}
			var to []string
			for _, e := range r.replies(task) {
				to = append(to, e.To)
			}
			equal(t, "replies to", to, []string{first.From, ada, second.From})
			for _, e := range []*envelope.Envelope{first, task, second} {
				if _, err := r.lane(mesh.Config{Entity: e.From}).Await(ctxFor(t), e, mesh.ResultOptions{}); codeOf(err) != envelope.CodeCancelled || !strings.Contains(err.Error(), "a slip") {
					t.Errorf("%s got %v", e.From, err)
				}
			}
		})
	}
}

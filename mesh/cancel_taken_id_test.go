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

package mesh_test

import (
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh"
)

// A program writes the text null into requires: a scheduled task has none then, as if it were signed; a
// live one is refused, and so is one that is not scheduled.
func TestTheTextNullInRequires(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client := r.client()
	if _, err := client.Send(ctxFor(t), requiring(newTask(reviewer, "code.review", `{}`), `null`), mesh.SendOptions{}); err == nil {
		t.Error("a live task is sent")
	}
	if _, err := client.Submit(ctxFor(t), requiring(newTask(reviewer, "code.review", `{}`), `null`), mesh.SubmitOptions{}); err == nil {
		t.Error("a task is submitted")
	}
	later := requiring(newTask(reviewer, "code.review", `{}`), `null`)
	if _, err := client.Submit(ctxFor(t), later, mesh.SubmitOptions{After: time.Hour}); err != nil || r.asleep() != 1 {
		t.Errorf("scheduled: %d tasks, %v", r.asleep(), err)
	}
}

package calls

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// stoppedTask is a task whose context has ended. Its other methods must not be called.
type stoppedTask struct{ TaskPort }

func (stoppedTask) Stopped() bool { return true }

// The worker that ends the run cancels its calls. Another worker that continues it waits for them.
func TestACallOfADurableTaskThatIsStoppedIsNotCancelled(t *testing.T) {
	t.Parallel()
	_, r := newFakeRun()
	o := &outgoing{Task: &Task{Port: stoppedTask{}, Run: r, Envelope: &envelope.Envelope{}}} // no agent: a cancel would panic
	o.cancel(state.Call{ID: "task-0002", To: "agent.helper", Live: true})
	if len(r.Record.over) != 0 {
		t.Error("the call is said to have ended")
	}
}

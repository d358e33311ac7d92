package mesh

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// The record of a run that was requeued names its new message, and counts its deliveries from
// nothing: else its first deliveries would look older than the claim of an owner that has died, and
// be left alone.
func TestARequeuedRunNamesItsNewMessage(t *testing.T) {
	t.Parallel()
	node, ctx, _, other := begunRun(t) // the only place is taken: the message is not drawn
	records := other.lane.records
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
	raw, err := task.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := other.lane.clock.now()
	c := state.New("agent.x", task.ID, other.lane.host.AgentID)
	run.Describe(c, run.Task{Envelope: raw, Priority: envelope.PriorityNormal, Stored: now, Deadline: now.Add(time.Hour)}, now)
	c.Mesh.Epoch, c.Mesh.Work, c.Mesh.Redelivered = 3, 99999, 7
	rev, _, err := records.put(ctx, c.ID(), 0, c)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := records.requeue(ctx, c, rev)
	if err != nil || !fresh {
		t.Fatalf("requeued anew: %v, %v", fresh, err)
	}
	rec, err := other.lane.cfg.States.Get(ctx, c.ID())
	if err != nil {
		t.Fatal(err)
	}
	again, err := records.read(rec)
	if err != nil {
		t.Fatal(err)
	}
	work := again.Mesh.Work
	if work == 0 || work == 99999 || again.Mesh.Redelivered != 0 {
		t.Errorf("the record names message %d, delivered %d times before", work, again.Mesh.Redelivered)
	}
	if fresh, err := records.requeue(ctx, again, rec.Revision); err != nil || fresh {
		t.Errorf("the same message once more: %v, %v", fresh, err)
	}
	// A message is the run's if it has the run's task. One that has another task was stored
	// under this sequence since the stream was made anew.
	another, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		work uint64
		task string
		want run.Fact
	}{
		"its own":           {work, task.ID, run.Yes},
		"of another task":   {another.Seq, task.ID, run.No},
		"of a task unknown": {another.Seq, "", run.Yes},
		"none":              {99999, task.ID, run.No},
	} {
		if there, err := records.messageQueued(ctx, now, test.work, test.task); there != test.want || err != nil {
			t.Errorf("%s: the message is there: %v, %v", name, there, err)
		}
	}
	other.lane.cfg.Queue.Fence()
	if there, err := records.messageQueued(ctx, now, work, task.ID); there != run.Maybe || err != nil {
		t.Errorf("a message that the worker may not read is there: %v, %v", there, err)
	}
}

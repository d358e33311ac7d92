package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// A run that is resumed behind a backlog has a message, so the sweep leaves it alone,
// and it goes on before tasks that have not begun. Finding D9 of the reliability
// review: it went to the end of the queue, and each sweep said that it had been lost.
func TestAResumedRunGoesBeforeWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	log, acks, g := &syncBuffer{}, r.listen("$JS.ACK.AEE_WORK.>"), newGate(t)
	order := make(chan string, 100)
	node := r.lane(mesh.Config{Logger: textLogger(log)}, func(d *mesh.Durable) { d.Sweep = 50 * time.Millisecond })
	r.serve(node, mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		var in struct{ Name string }
		if err := json.Unmarshal(task.Envelope.Payload, &in); err != nil {
			return nil, err
		}
		order <- in.Name
		switch {
		case in.Name == "blocks":
			g.Handle(ctx, task)
		case in.Name == "waits" && !task.Run().Restored():
			<-task.Run().StopRequested()
			return nil, task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil)
		default: // as long as the lane may need to draw from another consumer
			pause.For(ctx, 20*time.Millisecond)
		}
		return task.Envelope.Payload, nil
	})})
	client := r.client()
	send := func(name string) (*envelope.Envelope, mesh.Submitted) {
		task := newTask(reviewer, "code.review", `{"name":"`+name+`"}`)
		return task, r.submit(client, task)
	}
	waits, _ := send("waits")
	equal(t, "begun", within(t, "the first", order), "waits")
	if _, err := client.Command(ctxFor(t), reviewer, intents.PauseTask{Target: intents.Target{ID: waits.ID}}); err != nil {
		t.Fatal(err)
	}
	r.drainedQueue()
	_, blocks := send("blocks")
	equal(t, "begun", within(t, "the second", order), "blocks")
	backlog := make([]*envelope.Envelope, 20)
	for i := range backlog {
		backlog[i], _ = send(fmt.Sprint(i))
	}
	if _, err := client.Command(ctxFor(t), reviewer, intents.ResumeTask{Target: intents.Target{ID: waits.ID}}); err != nil {
		t.Fatal(err)
	}
	for range 12 { // four leases: the sweep takes runs for settled after two
		r.leased(acks, blocks.Seq)
	}
	if r.record(waits).Mesh.Work == 0 {
		t.Error("the record does not name its message, and once the server has forgotten the Nats-Msg-Id the sweep would queue another one")
	}
	equal(t, "messages", r.queued(), uint64(2+len(backlog)))
	if strings.Contains(log.String(), "runs without a message queued anew") {
		t.Error("the sweep says that the run had no message")
	}
	g.open()
	for _, task := range append(backlog, waits) {
		if _, err := r.result(client, task); err != nil {
			t.Error(err)
		}
	}
	r.drainedQueue()
	close(order)
	var begun []string
	for name := range order {
		begun = append(begun, name)
	}
	// Some tasks are drawn before the worker asks for those of the higher priority again.
	if at := slices.Index(begun, "waits"); at < 0 || at > len(backlog)/2 {
		t.Errorf("the resumed run was number %d of %v", at, begun)
	}
	equal(t, "its own priority", r.record(waits).Mesh.Priority, "normal")
}

// A run that has waited for a time, or for a person to settle a call, goes on as a resumed
// one does: with the next higher priority.
func TestARunThatIsWokenGoesBeforeWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wait func(context.Context, *mesh.Run) error
		wake func(r *durableRig, client *mesh.Node, task *envelope.Envelope)
	}{
		"its time has come": {func(ctx context.Context, run *mesh.Run) error {
			return run.ParkUntil(ctx, mesh.Wake{At: time.Now().Add(50 * time.Millisecond)}, func(c *state.Checkpoint) error {
				c.Mesh.Plan = json.RawMessage(`{}`)
				return nil
			})
		}, func(*durableRig, *mesh.Node, *envelope.Envelope) {}},
		"a call is settled": {func(ctx context.Context, run *mesh.Run) error {
			return run.Park(ctx, aaif.RunAwaitingApproval, func(c *state.Checkpoint) error {
				c.Mesh.Effects = []state.Effect{{ID: "call-1", Tool: "pay", Key: state.EffectKey(run.ID(), 1, 1), Status: state.EffectUnknown}}
				c.Doc.PendingToolCalls = []aaif.PendingToolCall{{ID: "call-1", ToolName: "pay", Arguments: json.RawMessage(`{}`), Status: aaif.ToolCallInFlight}}
				return nil
			})
		}, func(r *durableRig, client *mesh.Node, task *envelope.Envelope) {
			r.drainedQueue()
			if _, err := client.Command(ctxFor(r.t), reviewer, intents.SettleTask{Target: intents.Target{ID: task.ID}, Call: "call-1", Outcome: intents.OutcomeDone}); err != nil {
				r.t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			queued := r.listen("aee.work.*." + reviewer)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				if task.Run().Restored() {
					return task.Envelope.Payload, nil
				}
				return nil, c.wait(ctx, task.Run())
			})})
			client, task := r.client(), newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			equal(t, "queued at first", within(t, "the task", queued).Subject, "aee.work.normal."+reviewer)
			c.wake(r, client, task)
			again := within(t, "the run", queued)
			if again.Header.Get(headers.HeaderRun) == "" || again.Subject != "aee.work.high."+reviewer {
				t.Errorf("queued again on %s, %v", again.Subject, again.Header)
			}
			if _, err := r.result(client, task); err != nil {
				t.Error(err)
			}
			r.drainedQueue()
		})
	}
}

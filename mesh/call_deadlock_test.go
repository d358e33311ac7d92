package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A task that comes back to an agent all of whose places are taken by tasks that wait
// for it is refused at once; one that waits for another agent's is queued.
func TestATaskThatWouldWaitForItselfIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client := r.node(mesh.Config{Entity: ada})
	for _, c := range []struct {
		concurrency int
		others      int // tasks that have places besides the ancestor
		of          string
		code        envelope.Code
	}{
		{1, 0, "itself", envelope.CodeBusy},
		{2, 0, "itself", ""},
		{2, 1, "itself", envelope.CodeTimeout},
		{1, 0, "another", envelope.CodeTimeout},
	} {
		what := fmt.Sprintf("%+v", c)
		g := newGate(t)
		entity := fmt.Sprintf("agent.lead_%d_%d_%s", c.concurrency, c.others, c.of)
		r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: entity, Concurrency: c.concurrency, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			if task.Envelope.ReplyTo != "" {
				return json.RawMessage(`{}`), nil
			}
			return g.Handle(ctx, task)
		})})
		var ancestor string
		for range c.others + 1 {
			task := newTask(entity, "lead.work", `{}`)
			sending := make(chan error, 1)
			go func() {
				_, err := client.Send(context.WithoutCancel(ctxFor(t)), task, mesh.SendOptions{})
				sending <- err
			}()
			ancestor = within(t, "the ancestor", g.entered).Envelope.ID
			t.Cleanup(func() { <-sending })
		}
		if c.of == "another" {
			ancestor = envelope.NewID()
		}
		timeout := 60_000
		if c.code == envelope.CodeTimeout { // it waits for as long
			timeout = 400
		}
		hop := requiring(newTask(entity, "lead.work", `{}`), fmt.Sprintf(`{"timeout_ms":%d,"tree":{"depth":2,"waiting":[{"entity":%q,"task":%q},{"entity":"agent.helper","task":"x"}]}}`, timeout, entity, ancestor))
		hop.ReplyTo = ancestor
		_, err := client.Send(ctxFor(t), hop, mesh.SendOptions{})
		equal(t, what, codeOf(err), c.code)
		if c.code == envelope.CodeBusy && !strings.Contains(err.Error(), "taken by tasks that wait for this one") {
			t.Errorf("%s: %v", what, err)
		}
		g.open()
	}
}

// An agent that may do one task at once in the whole mesh is not called back, however
// many workers it has; one that has a second worker is.
func TestACircleOfAgents(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	for limit, code := range map[int]envelope.Code{0: "", 1: envelope.CodeTreeLimit} {
		top, below := fmt.Sprint("agent.top_", limit), fmt.Sprint("agent.below_", limit)
		for range 2 {
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: top, MeshConcurrency: limit, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				if task.Envelope.ReplyTo != "" {
					return json.RawMessage(`{"back":true}`), nil
				}
				return calling(mesh.Call{To: below, Key: "there"}, nil).Handle(ctx, task)
			})})
		}
		r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: below, Handler: calling(mesh.Call{To: top, Key: "back"}, nil)})
		reply, err := r.sent(newTask(top, "top.work", `{}`), false)
		equal(t, fmt.Sprint("limit ", limit), codeOf(err), code)
		if err == nil {
			equal(t, "answer", string(reply.Payload), `{"back":true}`)
		}
	}
}

// The durable lane does not refuse such a task, so the operator is told.
func TestADurableCircleIsToldTheOperator(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	log := &syncBuffer{}
	r.serve(r.lane(mesh.Config{Logger: textLogger(log)}), mesh.Agent{Entity: helper, Handler: calling(mesh.Call{To: lead, Key: "back"}, nil)})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "there"}, nil)})
	r.hears(helper, lead)
	client, task := r.client(), newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	eventually(t, "a word in the log", func() bool { return strings.Contains(log.String(), "the called agent itself waits for this call") })
	if _, err := client.Command(ctxFor(t), lead, intents.CancelTask{ID: task.ID}); err != nil {
		t.Error(err)
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// ways are how a task goes on to another agent.
func ways(to string) map[string]mesh.HandlerFunc {
	return map[string]mesh.HandlerFunc{
		"a call": func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			a, err := task.Call(ctx, mesh.Call{To: to, Key: "one", Payload: task.Envelope.Payload})
			if err != nil {
				return nil, err
			}
			return a.Envelope.Payload, nil
		},
		"a hand-over": func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			return task.Delegate(ctx, mesh.Delegation{To: to})
		},
	}
}

// hops are the tasks that an agent is sent from now on, over either lane.
func (r *durableRig) hops(to string) func() (*nats.Msg, *envelope.Envelope) {
	r.t.Helper()
	live, work := r.listen(to), r.listen("aee.work.*."+to)
	return func() (*nats.Msg, *envelope.Envelope) {
		r.t.Helper()
		for {
			var msg *nats.Msg
			select {
			case msg = <-live:
			case msg = <-work:
			case <-ctxFor(r.t).Done():
				r.t.Fatalf("%s was sent nothing", to)
			}
			if e := parse(r.t, msg.Data); e.Intent != "aee.spec.query" {
				return msg, e
			}
		}
	}
}

const someTrace = `{"span_id":"b7ad6b7169203331","trace_id":"0af7651916cd43dd8448eb211c80319c"}`

// Whichever way a task goes on, that a person has to approve it goes along, and the
// next worker refuses it, since no person can there. No worker runs such a task, so the one
// that sends it on is told here that its own is of that kind.
func TestApprovalIsInheritedByEveryHop(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		t.Error("a task was begun that nobody has approved")
		return json.RawMessage(`{}`), nil
	})})
	r.hears(helper)
	for name, way := range ways(helper) {
		for _, requires := range []string{`{}`, `{"handoff":false}`} { // the second: a hand-over has to be a call
			for _, durable := range []bool{false, true} {
				what := fmt.Sprintf("%s, requires %s, durable %v", name, requires, durable)
				entity := "agent.lead_" + strings.ToLower(envelope.NewID())
				r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: entity, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
					task.Requires.HumanApproval = true
					return way(ctx, task)
				})})
				r.hears(entity)
				next := r.hops(helper)
				_, err := r.sent(requiring(newTask(entity, "lead.work", `{}`), requires), durable)
				equal(t, what+": code", codeOf(err), envelope.CodeRequires)
				_, hop := next()
				equal(t, what+": human_approval", member(t, hop.Requires, "human_approval"), "true")
			}
		}
	}
}

// Corr, priority and trace are those of the first task at each leaf, however it
// came there.
func TestALeafHasThePriorityAndTheTraceOfItsTree(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: echo})
	r.hears(helper)
	for first := range ways("") {
		for second := range ways("") {
			for _, requires := range []string{`{}`, `{"handoff":false}`} {
				for _, durable := range []bool{false, true} {
					what := fmt.Sprintf("%s, then %s, requires %s, durable %v", first, second, requires, durable)
					id := strings.ToLower(envelope.NewID())
					top, middle := "agent.top_"+id, "agent.middle_"+id
					r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: middle, Handler: ways(helper)[second]})
					r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: top, Handler: ways(middle)[first]})
					r.hears(middle, top)
					next := r.hops(helper)
					task := requiring(newTask(top, "top.work", `{"n":1}`), requires)
					task.Priority, task.Trace = envelope.PriorityHigh, json.RawMessage(someTrace)
					reply, err := r.sent(task, durable)
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					equal(t, what+": answer", canonical(t, reply.Payload), `{"n":1}`)
					msg, hop := next()
					equal(t, what, []any{hop.Corr, hop.Priority, canonical(t, hop.Trace)}, []any{task.Corr, envelope.PriorityHigh, someTrace})
					if durable {
						equal(t, what+": subject", msg.Subject, "aee.work.high."+helper)
					}
				}
			}
		}
	}
}

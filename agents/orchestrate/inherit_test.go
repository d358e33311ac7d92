package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A member's task has the priority and the trace of its team's task, and its
// requirement of a person's approval, whatever the pattern: the member's worker
// then refuses it. No worker runs such a task, so the test sets the requirement
// on the team's task itself.
func TestMembersInheritWhatTheirTeamsTaskSays(t *testing.T) {
	t.Parallel()
	const trace = `{"span_id":"b7ad6b7169203331","trace_id":"0af7651916cd43dd8448eb211c80319c"}`
	r := newRig(t)
	r.serve(true, says(`{"n":1}`), "agent.a")
	sent := make(chan *envelope.Envelope, 1<<10)
	for _, subject := range []string{"agent.a", "aee.work.*.agent.a"} {
		if _, err := r.client.Conn().Subscribe(subject, func(m *nats.Msg) {
			if e, err := envelope.Parse(m.Data); err == nil && e.Type == envelope.TypeTask {
				sent <- e
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.client.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	for i, block := range []string{
		`{"pipeline":["agent.a"]}`,
		`{"parallel_execution":true,"subagents":[{"ref":"agent.a"}]}`,
		`{"role":"router","subagents":[{"ref":"agent.a"}]}`,
		`{"subagents":[{"ref":"agent.a"}]}`,
	} {
		for _, approval := range []bool{false, true} {
			entity := fmt.Sprintf("agent.team_%d_%v", i, approval)
			h := team(plan(t, block, extras(`"steps":{"agent.a":{"max_retries":0}}`)), nil)
			r.serve(true, mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				task.Requires.HumanApproval = approval
				return h(ctx, task)
			}), entity)
			for _, durable := range []bool{false, true} {
				what := fmt.Sprintf("%s, approval %v, durable %v", block, approval, durable)
				task := taskFor(entity, `{}`, "")
				task.Priority, task.Trace = envelope.PriorityHigh, json.RawMessage(trace)
				var err error
				if durable {
					_, _, err = r.client.Perform(r.ctx(), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
				} else {
					_, err = r.client.Send(r.ctx(), task, mesh.SendOptions{})
				}
				if (err != nil) != approval {
					t.Errorf("%s: %v", what, err)
				}
				hop := within(t, what, sent)
				var requires struct {
					Approval bool `json:"human_approval"`
				}
				if err := json.Unmarshal(hop.Requires, &requires); err != nil || requires.Approval != approval {
					t.Errorf("%s: requires %s, %v", what, hop.Requires, err)
				}
				if raw, err := envelope.Canonical(hop.Trace); err != nil || string(raw) != trace || hop.Priority != envelope.PriorityHigh || hop.Corr != task.Corr {
					t.Errorf("%s: trace %s, priority %s, corr %s", what, raw, hop.Priority, hop.Corr)
				}
			}
		}
	}
}

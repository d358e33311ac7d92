package agents_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

const mergingCrew = `"orchestration": {"parallel_execution": true, "subagents": [{"ref": "agent.one", "alias": "one"}, {"ref": "agent.two", "alias": "two"}]}`

// A delegated task brings the conversation of the agent that has delegated it. The members' outputs
// are not in it, so the model that merges them gets them instead.
func TestASwarmMergesWhatItsMembersMadeOfADelegatedTask(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			for _, name := range []string{"one", "two"} {
				l.serve((&member{name: name}).agent())
			}
			l.hosted("agent.triage", strings.ReplaceAll(handoffs(saidBilling, ""), `"agent.billing"`, `"agent.crew"`), agents.Options{}, says("This is for BILLING."))
			crew := l.hosted("agent.crew", mergingCrew, agents.Options{}, always("merged")...)
			reply, err := l.ask(durable, "agent.triage", `{"text":"I was charged twice."}`)
			if err != nil {
				t.Fatal(err)
			}
			if reply.From != "agent.crew" || !strings.Contains(string(reply.Payload), `"text":"merged"`) {
				t.Errorf("reply of %s: %s", reply.From, reply.Payload)
			}
			if n := len(crew.Requests()); n != 1 {
				t.Fatalf("%d turns, want 1", n)
			}
			said := spoken(crew.Requests()[0])
			for _, output := range []string{"I was charged twice. one", "I was charged twice. two"} {
				if !strings.Contains(said, output) {
					t.Errorf("the model that merges is not told %q:\n%s", output, said)
				}
			}
		})
	}
}

// E_RATE_LIMITED says that nothing was done, so its sender sends the task again. When the model that
// merges is over its limit, the members have worked.
func TestASwarmWhoseModelIsOverItsLimitHasWorked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := &member{name: "one"}, &member{name: "two"}
	w.host(one.agent())
	w.host(two.agent())
	fake := modeltest.New(modeltest.Turn{Fail: &model.Error{Kind: model.ErrRateLimited, RetryAfter: time.Millisecond}})
	w.host(newAgent(t, doc(t, mergingCrew), agents.Options{As: "agent.crew", Model: fake}))
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.crew", intents.RunIntent("agent.crew"), []byte(`{"text":"go"}`))
	_, err := w.node.Send(t.Context(), task, mesh.SendOptions{Retries: 1})
	var e *envelope.Error
	if !errors.As(err, &e) || e.Code != envelope.CodeUnavailable || !e.Retryable || e.BackoffMS != 1 {
		t.Errorf("got %v", err)
	}
	if one.calls.Load() != 1 || two.calls.Load() != 1 {
		t.Errorf("the members were called %d and %d times", one.calls.Load(), two.calls.Load())
	}
}

// The same for a run that another platform began: what its model said last is not the swarm's result.
func TestASwarmMergesWhatItsMembersMadeElsewhere(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	for _, name := range []string{"one", "two"} {
		l.serve((&member{name: name}).agent())
	}
	crew := l.hosted("agent.crew", mergingCrew, agents.Options{}, always("merged")...)
	const agent = `"agent_id":"5b0a8c2e-1111-4111-8111-111111111111"`
	doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","state_id":"`+uuid.NewString()+`","agent_id":"`+state.AgentID("agent.crew")+`","run_id":"`+uuid.NewString()+`",
		"checkpoint_at":"2026-03-01T12:00:00Z","status":"paused","iteration":3,"provenance":{"source_platform":"conveyor"},
		"conversation":[{"role":"user","content":"make a report"},{"role":"assistant","content":"I shall ask one and two."}],
		"pipeline_position":{"completed_steps":["one"]},"subagent_states":[{"alias":"one",`+agent+`,"status":"completed","output":{"text":"said elsewhere"}},{"alias":"two",`+agent+`,"status":"pending"}]}`),
		aaif.Options{Kind: aaif.KindState})
	if err != nil {
		t.Fatal(err)
	}
	var receipt mesh.Submitted
	until(t, "a discovery finds the agent", func() bool {
		receipt, err = l.client.Fork(l.ctx(), &state.Checkpoint{Doc: *doc.State()}, state.ForkOf{})
		if err != nil && !errors.Is(err, transfer.ErrUnknownAgent) {
			t.Fatal(err)
		}
		return err == nil
	})
	task := l.task("agent.crew", `{}`, "")
	task.ID = receipt.TaskID
	if got := l.result(task); !strings.Contains(got, `"text":"merged"`) {
		t.Errorf("result %s", got)
	}
	if n := len(crew.Requests()); n != 1 {
		t.Fatalf("%d turns, want 1", n)
	}
	said := spoken(crew.Requests()[0])
	for _, output := range []string{"said elsewhere", "make a report two"} {
		if !strings.Contains(said, output) {
			t.Errorf("the model that merges is not told %q:\n%s", output, said)
		}
	}
	history := l.history(task)
	last := history[len(history)-1]
	if talk := last.Messages(); last.Doc.Iteration.Int64() != 4 || len(talk) != 3 || talk[2].Content != "merged" {
		t.Errorf("iteration %d, conversation %+v: want the merge alone, as the fourth turn", last.Doc.Iteration.Int64(), talk)
	}
}

package agents_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// A model calls a person and an agent in one turn. The run waits without a
// worker, another worker resumes it, and neither gets a second task.
func TestAModelAsksAPerson(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	one := &member{name: "one"}
	l.host(one.agent(), nil)
	script := fmt.Sprintf(builtinScript, `[{"call":[{"name":"ada","arguments":{"text":"may I?"}},{"name":"one","arguments":{"text":"dig"}}]},{"say":"done"}]`)
	d := definition(t, `{"sc_standard":"SC-006","agent":{"name":"Lead","goal":"Lead."`+script+`,
		"orchestration":{"role":"orchestrator","subagents":[{"ref":"human.ada","alias":"ada"},{"ref":"agent.one","alias":"one"}]}}}`)
	first := l.host(newAgent(t, d, agents.Options{}), nil)
	task := l.task("agent.lead", `{"text":"zero"}`, "")
	l.submit(task)
	cp := l.until(task, "the run waits", func(cp *state.Checkpoint) bool { return cp.Doc.Status == aaif.RunAwaitingApproval })
	if len(cp.Mesh.Waits) != 1 || cp.Mesh.Waits[0].Entity != "human.ada" || cp.Doc.ApprovalRequest == nil || cp.Doc.ApprovalRequest.ApproverHint != "human.ada" {
		t.Errorf("waits %+v, approval request %+v", cp.Mesh.Waits, cp.Doc.ApprovalRequest)
	}
	for _, e := range cp.Mesh.Effects {
		if want := map[string]state.EffectStatus{"ada": state.EffectPending, "one": state.EffectDone}[e.Tool]; e.Status != want {
			t.Errorf("the call of %s is %s", e.Tool, e.Status)
		}
	}
	first.kill()
	asks, err := l.client.PersonTasks(l.ctx(), "human.ada")
	if err != nil || len(asks) != 1 || string(asks[0].Task.Payload) != `{"text":"may I?"}` {
		t.Fatalf("asks %+v, %v", asks, err)
	}
	if err := l.client.AnswerPersonTask(l.ctx(), asks[0], asks[0].Task.Reply(envelope.TypeResult, json.RawMessage(`{"text":"you may"}`))); err != nil {
		t.Fatal(err)
	}
	l.host(newAgent(t, d, agents.Options{}), nil)
	if got := l.result(task); !strings.Contains(got, `"text":"done"`) {
		t.Fatal(got)
	}
	cp = l.until(task, "the run has ended", func(cp *state.Checkpoint) bool { return cp.Terminal() })
	var said []string
	for _, m := range cp.Doc.Conversation {
		if m.Role == aaif.MessageTool {
			said = append(said, m.ToolName+": "+m.Content)
		}
	}
	if got := strings.Join(said, "; "); !strings.Contains(got, `ada: {"text":"you may"}`) || !strings.Contains(got, "one: ") {
		t.Errorf("the tools said %s", got)
	}
	if asks, err = l.client.PersonTasks(l.ctx(), ""); err != nil || len(asks) != 1 || asks[0].State != mesh.AskAnswered || one.calls.Load() != 1 {
		t.Errorf("%d tasks for people, %v; the agent was asked %d times", len(asks), err, one.calls.Load())
	}
}

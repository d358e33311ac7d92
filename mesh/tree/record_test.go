package tree_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/tree"
	"github.com/aeemesh/aeemesh/state"
)

// checkpoint is that of agent.team's run of task "t".
func checkpoint(t testing.TB, status aaif.RunStatus, change func(*state.Mesh)) *state.Checkpoint {
	t.Helper()
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.team", "agent.team.run", json.RawMessage(`{}`))
	task.ID, task.Corr = "task-t-0001", "corr-0001"
	raw, err := task.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &state.Checkpoint{}
	c.Doc.RunID, c.Doc.Status, c.Doc.CheckpointAt = "r-t", status, at(500).Format(time.RFC3339Nano)
	c.Mesh = state.Mesh{Entity: "agent.team", TaskID: task.ID, Task: raw, Epoch: 1, Owner: "w1", StartedAt: at(0), Ran: 500 * time.Millisecond}
	if change != nil {
		change(&c.Mesh)
	}
	return c
}

// find is the node of a task.
func find(t testing.TB, tr *tree.Tree, id string) *tree.Node {
	t.Helper()
	for _, n := range tr.Nodes {
		if n.ID == id {
			return n
		}
	}
	t.Fatalf("no node %s in\n%s", id, tr.Text(tree.TextOptions{}))
	return nil
}

func reply(t testing.TB, typ envelope.Type, payload string) *envelope.Envelope {
	t.Helper()
	e := envelope.New(typ, "agent.team", "human.ada", "agent.team.run", json.RawMessage(payload))
	e.Corr, e.ReplyTo = "corr-0001", "task-t-0001"
	return e
}

func TestCheckpointsTellWhatEventsDoNot(t *testing.T) {
	t.Parallel()
	b := tree.New("corr-0001")
	b.Checkpoint(checkpoint(t, aaif.RunAwaitingApproval, func(m *state.Mesh) {
		m.Usage = state.Usage{InputTokens: 5, CostNanoUSD: 7}
		m.Calls = []state.Call{{Key: "step/a", ID: "a", To: "agent.a", At: at(10)}, {Key: "step/b", ID: "b", To: "agent.b", Live: true, At: at(20)}}
		m.Waits = []state.Wait{{Entity: "human.ada", TaskID: "h", Key: "step/h", Asked: at(30), Until: at(9000)}, {Entity: "human.bob", TaskID: "v", Key: "step/v", Asked: at(40), Void: true},
			{Entity: "human.eve", TaskID: "l", Key: "step/l", Asked: at(40), Until: at(50), Void: true}, {Entity: "agent.x", TaskID: "x", Key: "step/x", Asked: at(40), Void: true}}
	}))
	tr := b.Tree(at(1000))
	root, person := find(t, tr, "task-t-0001"), find(t, tr, "h")
	if root.State != tree.Waiting || root.Status != "awaiting_approval" || root.Sender != "human.ada" || root.Usage.Tokens() != 5 || root.Lane != "durable" || !root.Began.Equal(at(0)) {
		t.Errorf("root: %+v", root)
	}
	if person.State != tree.Waiting || person.WaitsFor != "human.ada" || person.Until != "2026-01-01T12:00:09.000Z" || person.Parent != root.ID {
		t.Errorf("person: %+v", person)
	}
	if a, bb := find(t, tr, "a"), find(t, tr, "b"); a.Lane != "durable" || bb.Lane != "live" || a.State != tree.Sent || !a.Sent.Equal(at(10)) {
		t.Errorf("calls: %+v %+v", a, bb)
	}
	if void, late, other := find(t, tr, "v"), find(t, tr, "l"), find(t, tr, "x"); void.State != tree.Withdrawn || late.State != tree.Failed || late.Code != "E_TIMEOUT" || late.DurationMS != 10 || other.State != tree.Sent {
		t.Errorf("void: %+v %+v %+v", void, late, other)
	}
	if tr.Tasks.Total != 7 || tr.State != tree.Waiting {
		t.Errorf("%+v", tr.Tasks)
	}
}

// An agent that waits for a person is waited for by its caller. It does not wait for itself.
func TestAnAgentIsNotSaidToWaitForItself(t *testing.T) {
	t.Parallel()
	b := tree.New("corr-0001")
	b.Checkpoint(checkpoint(t, aaif.RunAwaitingApproval, func(m *state.Mesh) {
		m.Waits = []state.Wait{{Entity: "human.ada", TaskID: "h", Key: "step/h", Asked: at(30), Until: at(9000)}, {Entity: "agent.panel", TaskID: "p", Key: "step/p", Asked: at(30), Until: at(9000)}}
	}))
	tr := b.Tree(at(1000))
	if n := find(t, tr, "p"); n.State != tree.Waiting || n.WaitsFor != "agent.panel" {
		t.Errorf("panel: %+v", n)
	}
	drawn := tr.Text(tree.TextOptions{})
	if strings.Contains(drawn, "waiting for agent.panel") || !strings.Contains(drawn, "waiting for human.ada") {
		t.Errorf("drawn as\n%s", drawn)
	}
}

func TestWhereARunStandsIsSaidAsFarAsItIsKnown(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]*aaif.PipelinePosition{
		"at b, 1 of 3 steps done":       {CurrentStep: "b", CompletedSteps: []string{"a"}, RemainingSteps: []string{"b", "c"}},
		"at swarm, 1 step done":         {CurrentStep: "swarm", CompletedSteps: []string{"a"}},
		"at model led, 2 steps done":    {CurrentStep: "model_led", CompletedSteps: []string{"a", "b"}},
		"waiting (awaiting approval)\n": {},
	} {
		b := tree.New("corr-0001")
		c := checkpoint(t, aaif.RunAwaitingApproval, func(*state.Mesh) {})
		c.Doc.PipelinePosition = p
		b.Checkpoint(c)
		if got := b.Tree(at(0)).Text(tree.TextOptions{}); !strings.Contains(got, want) {
			t.Errorf("want %q:\n%s", want, got)
		}
	}
}

func TestCheckpointsGoBeforeEventsThatWereLost(t *testing.T) {
	t.Parallel()
	const id = "task-t-0001"
	started := `0 agent.team mesh.task.started {"task":"task-t-0001","run":"r-t","epoch":1,"attempt":1}` + "\n"
	for _, c := range []struct {
		name, events string
		status       aaif.RunStatus
		change       func(*state.Mesh)
		want         tree.State
		code         string
	}{
		{"it ended", started, aaif.RunCompleted, nil, tree.Done, ""},
		{"it runs", started, aaif.RunRunning, nil, tree.Running, ""},
		{"it failed", started, aaif.RunFailed, func(m *state.Mesh) {
			m.Reply, _ = reply(t, envelope.TypeError, `{"code":"E_X","message":"m","retryable":false}`).AppendJSON(nil)
		}, tree.Failed, ""},
		{"it was handed on", started, aaif.RunCompleted, func(m *state.Mesh) { m.Handed = &state.Handed{To: "agent.b", TaskID: "b"} }, tree.HandedOff, ""},
		{"it goes on after a pause", started + `5 agent.team mesh.task.parked {"task":"task-t-0001","run":"r-t","epoch":1,"attempt":1,"status":"paused"}` + "\n", aaif.RunRunning, nil, tree.Running, ""},
		{"the event was later", started + `5 agent.team mesh.task.failed {"task":"task-t-0001","run":"r-t","epoch":1,"attempt":1,"error":{"code":"E_Y","message":"m"}}` + "\n", aaif.RunFailed, nil, tree.Failed, "E_Y"},
		{"it has not begun", "", aaif.RunPaused, func(m *state.Mesh) { m.Epoch = 0 }, tree.Unknown, ""},
	} {
		s := readScript(t, "corr corr-0001\n"+c.events)
		b := tree.New("corr-0001")
		for _, e := range s.events {
			b.Event(e.at, e.env)
		}
		if !b.Checkpoint(checkpoint(t, c.status, c.change)) {
			t.Errorf("%s: not taken", c.name)
		}
		n := find(t, b.Tree(at(1000)), id)
		if n.State != c.want || n.Code != c.code {
			t.Errorf("%s: %s %s, want %s %s", c.name, n.State, n.Code, c.want, c.code)
		}
	}
}

func TestSealedRunsAreKnownByTheirHeader(t *testing.T) {
	t.Parallel()
	b := tree.New("corr-0001")
	b.Header(state.Header{Run: "r", TaskID: "t", Entity: "agent.team", Status: aaif.RunPaused, Epoch: 2, Owner: "w", At: at(5)})
	if n := find(t, b.Tree(at(10)), "t"); n.State != tree.Waiting || n.Status != "paused" || n.Epoch != 2 || n.Lane != "durable" {
		t.Errorf("%+v", n)
	}
	if b.Header(state.Header{Run: "r", TaskID: "t", Entity: "agent.other", Status: aaif.RunCompleted, Epoch: 3}) || b.Header(state.Header{Entity: "agent.team"}) {
		t.Error("another entity's word, or none, is taken")
	}
}

func TestAnswersStandInForEvents(t *testing.T) {
	t.Parallel()
	b := tree.New("corr-0001")
	b.Step(at(0), "agent.team", intents.RunStepStarted, intents.StepEvent{Task: "top", To: "agent.team", Child: "task-t-0001", Durable: true})
	if !b.Answer("task-t-0001", at(40), reply(t, envelope.TypeResult, `{"usage":{"input_tokens":3,"cost_usd":0.5}}`)) {
		t.Fatal("not taken")
	}
	n := find(t, b.Tree(at(100)), "task-t-0001")
	if n.State != tree.Done || n.Usage.InputTokens != 3 || n.Usage.CostUSD != 500_000_000 || n.DurationMS != 40 {
		t.Errorf("%+v %+v", n, n.Usage)
	}
	foreign := reply(t, envelope.TypeResult, `{}`)
	foreign.Corr = "corr-0002"
	if b.Answer("task-t-0001", at(1), foreign) || b.Answer("top", at(1), reply(t, envelope.TypeStream, `{}`)) {
		t.Error("a foreign answer, or none, is taken")
	}
}

// A call that waited for a first worker and then took the durable lane is one task.
func TestACallThatWaitedForAWorkerIsOneTask(t *testing.T) {
	t.Parallel()
	b := tree.New("corr-0001")
	for i, child := range []string{"task-live-0001", "task-durable-0001"} {
		b.Step(at(i), "agent.team", intents.RunStepStarted, intents.StepEvent{Task: "top", To: "agent.two", Step: "step/0", Child: child, Try: 1, Durable: i == 1})
	}
	if tr := b.Tree(at(100)); len(tr.Nodes) != 2 || find(t, tr, "task-durable-0001").State != tree.Sent {
		t.Errorf("%+v", tr.Nodes)
	}
	b.Step(at(2), "agent.team", intents.RunStepStarted, intents.StepEvent{Task: "top", To: "agent.two", Step: "step/0", Child: "task-durable-0002", Try: 2, Durable: true})
	if tr := b.Tree(at(100)); len(tr.Nodes) != 3 {
		t.Errorf("another try is another task: %+v", tr.Nodes)
	}
}

package state_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/state"
	"github.com/go-json-experiment/json/jsontext"
)

// life returns the history of a run, as a worker writes it, one checkpoint after the
// other.
func life(t *testing.T) (k state.Codec, history []state.Record) {
	t.Helper()
	k = fixed(state.Codec{})
	c := state.New("agent.reviewer", "01JD0000000000000000000000", "")
	c.Mesh.Task = []byte(`{"v":"1","id":"01JD0000000000000000000000","ts":"2026-11-20T10:00:00.000Z","type":"task","from":"human.ann","to":"agent.reviewer","intent":"chat.ask","corr":"01JD0000000000000000000000","reply_to":null,"trace":null,"priority":"normal","requires":null,"payload":{"text":"Look."},"sig":{"alg":"x"}}`)
	key := state.EffectKey(c.Doc.RunID, 1, 1)
	step := func(kind state.StepKind, name string, change func()) {
		t.Helper()
		c.Mesh.Step = state.Step{Kind: kind, Name: name}
		change()
		data, err := k.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, state.Record{ID: c.ID(), Data: data, Revision: uint64(len(history) + 1), Time: start})
	}
	step(state.StepClaim, "", func() { c.Mesh.Epoch, c.Mesh.Owner = 1, "host-1" })
	step(state.StepModel, "echo", func() {
		c.Append(model.System("Be brief."), start, 0)
		c.Append(model.User("Look.\x1b[2J"), start, 2)
		c.Append(model.Assistant("", model.ToolCall{ID: "call_1", Name: "look", Arguments: []byte(`{"at":"x"}`)}), start, 5)
		c.Doc.Iteration = "1"
		c.Doc.PendingToolCalls = []aaif.PendingToolCall{{ID: "call_1", ToolName: "look", Arguments: []byte(`{"at":"x"}`), Status: aaif.ToolCallPending}}
		c.Mesh.Effects = []state.Effect{{ID: "call_1", Tool: "look", Key: key, ArgsHash: state.ArgsHash([]byte(`{"at":"x"}`)), Status: state.EffectPending, Epoch: 1}}
		c.Mesh.Usage = state.Usage{InputTokens: 10, OutputTokens: 5, ModelCalls: 1}
	})
	step(state.StepIntent, "look", func() {
		e := c.Effect(key)
		e.Status, e.Tries, e.At = state.EffectInFlight, 1, start
		c.Doc.PendingToolCalls[0].Status = aaif.ToolCallInFlight
	})
	step(state.StepClaim, "", func() { c.Mesh.Epoch, c.Mesh.Owner = 2, "host-2" })
	step(state.StepPause, "", func() {
		c.Effect(key).Status = state.EffectUnknown
		c.Doc.Status = aaif.RunAwaitingApproval
		c.Doc.ApprovalRequest = &aaif.ApprovalRequest{TriggerDescription: "The outcome of look is unknown."}
	})
	step(state.StepSettle, "look", func() {
		left, err := c.Settle("call_1", state.SettleDone, []byte(`{"seen":true}`), "", "human.ann", start)
		if left != 0 || err != nil {
			t.Fatalf("Settle: %d left, %v", left, err)
		}
		c.Doc.Status = aaif.RunRunning
	})
	step(state.StepReceipt, "look", func() {
		m := model.ToolResult(c.Messages()[2].ToolCalls[0], c.Effect(key).Result)
		c.Append(m, start, 0)
		c.Effect(key).Result, c.Doc.PendingToolCalls = nil, nil
	})
	step(state.StepTerminal, "", func() {
		c.Append(model.Assistant("It is there."), start, 0)
		c.Doc.Iteration, c.Doc.Status = "2", aaif.RunCompleted
		c.Mesh.Reply = []byte(`{"v":"1"}`)
	})
	return k, history
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	k, history := life(t)
	var got []string
	for _, m := range state.Timeline(k, history) {
		got = append(got, strings.TrimSpace(string(m.Step.Kind)+" "+m.Step.Name+": "+strings.Join(m.Events, "; ")))
	}
	want := []string{
		"claim : claimed by host-1 (epoch 1)",
		"model echo: system: Be brief.; user: Look. [2J; assistant calls look; call call_1 of look: pending; 10 tokens in, 5 out",
		"intent look: call call_1 of look: in flight",
		"claim : taken over by host-2 from host-1 (epoch 2)",
		"pause : awaiting approval, was running; call call_1 of look: unknown whether it was done; waits for a person: The outcome of look is unknown.",
		"settle look: running, was awaiting approval; call call_1 of look: done, says human.ann",
		`receipt look: tool look: {"seen":true}`,
		"terminal : completed, was running; assistant: It is there.; the reply is committed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("timeline\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	ring, err := state.NewKeyring(state.Key{ID: "k", Secret: make([]byte, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := k.Decode(history[3].Data)
	if err != nil {
		t.Fatal(err)
	}
	data, err := state.Codec{Seal: ring}.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	sealed := state.Timeline(k, []state.Record{{Data: data, Revision: 4, Time: start}, {Data: []byte("junk"), Revision: 5, Time: start}})
	if m := sealed[0]; m.Owner != "host-2" || m.Epoch != 2 || m.Step.Kind != state.StepClaim || m.Problem == "" || m.Events != nil {
		t.Errorf("a sealed checkpoint is %+v", m)
	}
	if m := sealed[1]; m.Problem == "" || m.Revision != 5 || !m.At.Equal(start) {
		t.Errorf("junk is %+v", m)
	}
}

// The timeline says who asked for something, and why.
func TestTimelineTellsWhoAsked(t *testing.T) {
	t.Parallel()
	k, history := life(t)
	c, err := k.Decode(history[2].Data)
	if err != nil {
		t.Fatal(err)
	}
	history = history[:3]
	for i, change := range []func(){
		func() {
			c.Mesh.Pending, c.Mesh.Step = "paused", state.Step{Kind: state.StepPause, Detail: state.AskedBy + "human.ann: the API is down"}
		},
		func() {
			c.Mesh.Pending, c.Mesh.Step = "", state.Step{Kind: state.StepResume, Detail: state.AskedBy + "human.bob"}
		},
		func() {
			c.Mesh.Migration = &state.Migration{ID: "1", Phase: state.PhaseAsked}
			c.Mesh.Step = state.Step{Kind: state.StepMigrate, Detail: "to any, " + state.AskedBy + "human.bob"}
		},
	} {
		change()
		data, err := k.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, state.Record{Data: data, Revision: uint64(4 + i), Time: start})
	}
	var got []string
	for _, m := range state.Timeline(k, history)[3:] {
		got = append(got, strings.Join(m.Events, "; "))
	}
	want := []string{
		"paused is asked for; asked by human.ann: the API is down", "asked by human.bob", "migration asked; to any, asked by human.bob",
	}
	if !slices.Equal(got, want) {
		t.Errorf("timeline\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A run that was taken from a dead worker, or was resumed or settled, has no owner until a
// worker claims it.
func TestTimelineOfARunThatWaitsForAWorker(t *testing.T) {
	t.Parallel()
	k, history := life(t)
	c, err := k.Decode(history[5].Data)
	if err != nil {
		t.Fatal(err)
	}
	history = history[:6]
	for _, owner := range []string{"", "", "host-3"} {
		c.Mesh.Epoch, c.Mesh.Owner = c.Mesh.Epoch+1, owner
		data, err := k.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, state.Record{ID: c.ID(), Data: data, Revision: uint64(len(history) + 1), Time: start})
	}
	var got []string
	for _, m := range state.Timeline(k, history)[6:] {
		got = append(got, m.Events...)
	}
	if want := []string{"taken from host-2, which died (epoch 3)", "waits for a worker (epoch 4)", "claimed by host-3 (epoch 5)"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if first := state.Timeline(k, history[6:])[0]; len(first.Events) > 0 && strings.HasPrefix(first.Events[0], "owned by ,") {
		t.Errorf("%q", first.Events)
	}
}

// A task of one short step leaves its reply and nothing else: nothing waits for a worker.
func TestTimelineOfARunWithoutADocument(t *testing.T) {
	t.Parallel()
	k, _ := life(t)
	const entity, task = "agent.x", "01JD0000000000000000000000"
	reply := fmt.Sprintf(`{"v":"1","id":"01JD0000000000000000000001","ts":"2026-11-20T10:00:00Z","type":"result","from":%q,"to":"human.ada","intent":"agent.ask","corr":"workflow-1","reply_to":%q,"priority":"normal","payload":{"text":"done"}}`, entity, task)
	record := state.Record{
		ID: state.ID{Entity: entity, Run: state.RunID(entity, task)}, Data: []byte(reply), Revision: 7, Time: start,
		End: &state.End{TaskID: task, Agent: entity, Epoch: 1, Status: aaif.RunCompleted, StoredAt: start, StartedAt: start},
	}
	got := state.Timeline(k, []state.Record{record})
	if want := []string{"ended in one step (epoch 1)", "the reply is committed"}; len(got) != 1 || !slices.Equal(got[0].Events, want) {
		t.Errorf("%+v, want the events %q", got, want)
	}
}

func TestTimelineTellsOfCalls(t *testing.T) {
	t.Parallel()
	call := func(id string) state.Call { return state.Call{Key: "step/" + id, ID: id, To: "agent.y"} }
	var history []state.Record
	for _, calls := range [][]state.Call{nil, {call("a"), call("b")}, {call("b"), call("c")}, {call("1"), call("2"), call("3"), call("4"), call("5"), call("6")}} {
		c := begun()
		c.Mesh.Calls = calls
		data, err := state.Codec{}.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, state.Record{Data: data})
	}
	var got []string
	for _, m := range state.Timeline(state.Codec{}, history)[1:] {
		got = append(got, strings.Join(m.Events, "; "))
	}
	want := []string{
		"call step/a of agent.y begins: task a; call step/b of agent.y begins: task b",
		"call step/c of agent.y begins: task c; call step/a of agent.y is over: task a",
		"call step/1 of agent.y begins: task 1; call step/2 of agent.y begins: task 2; call step/3 of agent.y begins: task 3; call step/4 of agent.y begins: task 4; " +
			"2 calls more begin; call step/b of agent.y is over: task b; call step/c of agent.y is over: task c",
	}
	if !slices.Equal(got, want) {
		t.Errorf("timeline\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	k, history := life(t)
	var cs []*state.Checkpoint
	for _, r := range history {
		c, err := k.Decode(r.Data)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	if same, err := state.Diff(cs[1], cs[1].Clone()); err != nil || len(same) != 0 {
		t.Errorf("a checkpoint differs from itself: %v, %v", same, err)
	}
	changes, err := state.Diff(cs[2], cs[6])
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, c.String())
	}
	want := []string{
		`+ /conversation/3: {"content":"{\"seen\":true}","role":"tool","timestamp":"2026-11-20T10:00:00.123456Z","tool_call_id":"call_1","tool_name":"look"}`,
		`- /pending_tool_calls: [{"arguments":{"at":"x"},"id":"call_1","status":"in_flight","tool_name":"look"}]`,
		`+ /x-aeemesh/effects/0/done_at: "2026-11-20T10:00:00.123456Z"`,
		`~ /x-aeemesh/effects/0/epoch: 1 -> 2`,
		`+ /x-aeemesh/effects/0/settled_by: "human.ann"`,
		`~ /x-aeemesh/effects/0/status: "in_flight" -> "done"`,
		`~ /x-aeemesh/epoch: 1 -> 2`,
		`~ /x-aeemesh/owner: "host-1" -> "host-2"`,
		`~ /x-aeemesh/step/kind: "intent" -> "receipt"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("diff\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	other := cs[2].Clone() // values that are held as text are compared member by member
	other.Mesh.Task = []byte(strings.Replace(string(other.Mesh.Task), "Look.", "Go.", 1))
	changes, err = state.Diff(cs[2], other)
	if err != nil || len(changes) != 1 || changes[0].Path != "/x-aeemesh/task/payload/text" {
		t.Errorf("another task: %v, %v", changes, err)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	two := func() *state.Checkpoint {
		c := state.New("agent.a", "t", "")
		c.Mesh.Epoch = 7
		c.Doc.ApprovalRequest = &aaif.ApprovalRequest{}
		for _, id := range []string{"a", "b"} {
			c.Mesh.Effects = append(c.Mesh.Effects, state.Effect{ID: id, Tool: "send", Key: "k." + id, Status: state.EffectUnknown, At: start, Tries: 1, Epoch: 3})
			c.Doc.PendingToolCalls = append(c.Doc.PendingToolCalls, aaif.PendingToolCall{ID: id, ToolName: "send", Arguments: []byte(`{}`), Status: aaif.ToolCallInFlight})
		}
		c.Mesh.Effects = append(c.Mesh.Effects, state.Effect{ID: "c", Key: "k.c", Status: state.EffectDone})
		return c
	}
	base := state.Effect{ID: "a", Tool: "send", Key: "k.a", At: start, Tries: 1, Epoch: 7, SettledBy: "human.ann"}
	for name, tt := range map[string]struct {
		call, outcome, reason string
		result                json.RawMessage
		want                  func(*state.Effect)
	}{
		"done": {"a", "done", "", []byte(`{"n": 1}`), func(e *state.Effect) { e.Status, e.DoneAt, e.Result = "done", start, []byte(`{"n": 1}`) }},
		"done, no result": {"k.a", "done", "seen it", nil, func(e *state.Effect) {
			e.Status, e.DoneAt, e.Result = "done", start, []byte(`{"settled":"settled as done by human.ann: seen it"}`)
		}},
		"failed": {"a", "failed", "never came", nil, func(e *state.Effect) {
			e.Status, e.DoneAt, e.Error = "failed", start, "settled as not done by human.ann: never came"
		}},
		"repeat": {"a", "repeat", "", nil, func(e *state.Effect) { e.Status = "pending" }},
	} {
		c := two()
		left, err := c.Settle(tt.call, tt.outcome, tt.result, tt.reason, "human.ann", start)
		if err != nil || left != 1 || c.Doc.ApprovalRequest == nil {
			t.Errorf("%s: %d left, %v, request %v", name, left, err, c.Doc.ApprovalRequest)
			continue
		}
		want := base
		tt.want(&want)
		got, _ := json.Marshal(c.Mesh.Effects[0])
		if exp, _ := json.Marshal(want); string(got) != string(exp) {
			t.Errorf("%s: %s, want %s", name, got, exp)
		}
		wantPending := aaif.ToolCallInFlight
		if tt.outcome == "repeat" {
			wantPending = aaif.ToolCallPending
		}
		if got := c.Doc.PendingToolCalls[0].Status; got != wantPending {
			t.Errorf("%s: the pending call is %s, want %s", name, got, wantPending)
		}
		if left, err = c.Settle("b", "done", nil, "", "human.ann", start); left != 0 || err != nil || c.Doc.ApprovalRequest != nil {
			t.Errorf("%s: the last one: %d left, %v, request %v", name, left, err, c.Doc.ApprovalRequest)
		}
	}
	none := two()
	none.Mesh.Effects = nil
	for call, want := range map[string]string{
		"":  "the run cannot be settled: none of its calls has an unknown outcome",
		"a": "call a cannot be settled: no call of the run has an unknown outcome",
	} {
		if _, err := none.Settle(call, "done", nil, "", "human.ann", start); !errors.Is(err, state.ErrSettle) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, tt := range []struct {
		call, outcome, result, want string
	}{
		{"z", "done", "", "call z cannot be settled: the run has no such call; calls with an unknown outcome: a, b"},
		{"c", "done", "", "call c cannot be settled: it is done"},
		{"a", "maybe", "", `call a cannot be settled as "maybe": want done, failed or repeat`},
		{"a", "done", "{", "call a cannot be settled: the result is not valid JSON"},
	} {
		c := two()
		if _, err := c.Settle(tt.call, tt.outcome, []byte(tt.result), "", "human.ann", start); !errors.Is(err, state.ErrSettle) || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
		if len(c.Unknown()) != 2 {
			t.Error("a refused word has changed something")
		}
	}
}

func TestMemories(t *testing.T) {
	t.Parallel()
	c := state.New("agent.a", "t", "")
	for _, scope := range []aaif.MemoryScope{aaif.ScopeUser, aaif.ScopeSession, aaif.ScopeTask, aaif.ScopeLongTerm} {
		c.Doc.MemorySnapshot = append(c.Doc.MemorySnapshot, aaif.MemoryItem{Scope: scope, Key: string(scope)})
	}
	c.Doc.MemorySnapshot = append(c.Doc.MemorySnapshot,
		aaif.MemoryItem{Scope: aaif.ScopeLongTerm, Key: "forever", TTLRemainingSeconds: "0"},
		aaif.MemoryItem{Scope: aaif.ScopeLongTerm, Key: "young", TTLRemainingSeconds: "60"},
		aaif.MemoryItem{Scope: aaif.ScopeLongTerm, Key: "over", TTLRemainingSeconds: "-1"})
	ann := state.Whose{User: "ann", Session: "s1", Run: "r1"}
	for name, tt := range map[string]struct {
		was, is state.Whose
		want    string
	}{
		"the same run":          {ann, ann, "user session task long_term forever young"},
		"another run of hers":   {ann, state.Whose{User: "ann", Session: "s1", Run: "r2"}, "user session long_term forever young"},
		"another session":       {ann, state.Whose{User: "ann", Session: "s2", Run: "r2"}, "user long_term forever young"},
		"no sessions":           {state.Whose{User: "ann", Run: "r1"}, state.Whose{User: "ann", Run: "r2"}, "user long_term forever young"},
		"another user":          {ann, state.Whose{User: "bob", Session: "s1", Run: "r2"}, "long_term forever young"},
		"nobody knows whose":    {state.Whose{}, state.Whose{}, "long_term forever young"},
		"hers, nobody's before": {state.Whose{}, ann, "long_term forever young"},
	} {
		var got []string
		for _, m := range c.Memories(tt.was, tt.is) {
			got = append(got, m.Key)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", name, got, tt.want)
		}
	}
}

func TestFork(t *testing.T) {
	t.Parallel()
	k, history := life(t)
	for i, r := range history {
		c, err := k.Decode(r.Data)
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.Fork(state.ForkOf{TaskID: "01JE0000000000000000000000", From: "human.bob", Revision: r.Revision}, start.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Encode(f); err != nil {
			t.Fatalf("fork of checkpoint %d: %v", i, err)
		}
		if f.Doc.RunID != state.RunID("agent.reviewer", "01JE0000000000000000000000") || f.Terminal() || f.Mesh.Epoch != 0 || f.Mesh.Reply != nil || f.Mesh.Owner != "" {
			t.Errorf("the fork of checkpoint %d is %+v", i, f)
		}
		if i == 4 && f.Doc.Status != aaif.RunAwaitingApproval || i != 4 && f.Doc.Status != aaif.RunRunning {
			t.Errorf("the fork of checkpoint %d is %s", i, f.Doc.Status)
		}
		if len(f.Messages()) != len(c.Messages()) || len(f.Mesh.Effects) != len(c.Mesh.Effects) {
			t.Errorf("the fork of checkpoint %d lost what was said or done", i)
		}
		if p := f.Mesh.Parent; p.Run != c.Doc.RunID || p.StateID != c.Doc.StateID || p.Revision != r.Revision || p.Kind != "fork" {
			t.Errorf("the parent of the fork is %+v", p)
		}
		want := `{"v":"1","id":"01JE0000000000000000000000","ts":"2026-11-20T11:00:00.123Z","type":"task","from":"human.bob","to":"agent.reviewer","intent":"chat.ask","corr":"01JE0000000000000000000000","reply_to":null,"trace":null,"priority":"normal","requires":null,"payload":{"text":"Look."},"sig":null}`
		if string(f.Mesh.Task) != want {
			t.Errorf("the fork's task is %s", f.Mesh.Task)
		}
		if _, err := c.Fork(state.ForkOf{TaskID: c.Mesh.TaskID}, start); err == nil {
			t.Error("a fork under the parent's task id")
		}
	}
}

// A fork begins a tree of tasks of its own, and answers its own sender: what the parent's task
// says of the tasks above it, and of those that delegated it, is not so for the fork.
func TestAForkHasItsOwnPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ requires, want string }{
		"none":           {`null`, `null`},
		"its own":        {`{"format":"json","timeout_ms":5000}`, `{"format":"json","timeout_ms":5000}`},
		"of a team":      {`{"timeout_ms":5000,"tree":{"root":"r","key":"k","depth":2,"deadline":"2026-11-20T10:00:05Z","teams":[{"task":"r","max_iterations":3}],"waiting":[{"entity":"agent.lead","task":"r"}]}}`, `{"timeout_ms":5000}`},
		"of a budget":    {`{"tree":{"depth":1,"tokens":70,"usd":0.50}}`, `{"tree":{"tokens":70,"usd":0.50}}`},
		"handed on":      {`{"handoff":{"task":"t","caller":"human.ann","chain":["x"]},"handed_by":["agent.a"],"context":{"state_id":"s"},"timeout_ms":5000}`, `{"timeout_ms":5000}`},
		"answers itself": {`{"handoff":false}`, `{"handoff":false}`},
		"nothing left":   {`{"tree":{"depth":1}}`, `null`},
		"spelled":        {`{"tr\u0065e":{"depth":1,"root":"r"},"timeout_ms":5000}`, `{"timeout_ms":5000}`},
	} {
		task := `{"v":"1","id":"01JD0000000000000000000000","ts":"2026-11-20T10:00:00.000Z","type":"task","from":"agent.lead","to":"agent.reviewer","intent":"chat.ask","corr":"01JC0000000000000000000000","reply_to":"01JC0000000000000000000000","trace":null,"priority":"normal","requires":` + c.requires + `,"payload":{"text":"Look."},"sig":null}`
		parent := state.New("agent.reviewer", "01JD0000000000000000000000", "")
		parent.Mesh.Task = json.RawMessage(task)
		f, err := parent.Fork(state.ForkOf{TaskID: "01JE0000000000000000000000"}, start)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := `{"v":"1","id":"01JE0000000000000000000000","ts":"2026-11-20T10:00:00.123Z","type":"task","from":"agent.lead","to":"agent.reviewer","intent":"chat.ask","corr":"01JE0000000000000000000000","reply_to":null,"trace":null,"priority":"normal","requires":` + c.want + `,"payload":{"text":"Look."},"sig":null}`
		if got := string(f.Mesh.Task); got != want {
			t.Errorf("%s: the fork's task is\n%s, want\n%s", name, got, want)
		}
	}
}

func TestStripLeavesNoStackTrace(t *testing.T) {
	t.Parallel()
	c := full()
	data, err := state.Codec{}.Encode(c)
	if err != nil || !strings.Contains(string(data), "stack_trace") {
		t.Fatal(err)
	}
	if data, err = (state.Codec{}).Marshal(c.Strip()); err != nil || strings.Contains(string(data), "stack_trace") || strings.Contains(string(data), "migration_token") {
		t.Errorf("%v %s", err, data)
	}
	if c.Doc.Error.StackTrace == "" {
		t.Error("Strip has changed the checkpoint itself")
	}
	// Nor does a document for another platform, which has nothing of the run's owner either.
	c.Mesh.Plan = json.RawMessage(`{"chosen":[{"entity":"agent.bank"}],"scope":"s"}`)
	out := c.Outbound("berlin", "paris", "")
	if data, err = (state.Codec{}).Marshal(out); err != nil || strings.Contains(string(data), "stack_trace") {
		t.Errorf("%v %s", err, data)
	}
	if m := &out.Mesh; m.Owner != "" || m.Work != 0 || string(m.Plan) != `{"scope":"s"}` || c.Mesh.Owner == "" {
		t.Errorf("owner %q, message %d, plan %s", m.Owner, m.Work, m.Plan)
	}
}

// Nothing that a model or a tool says may keep a run from being stored.
func TestEncodeAcceptsAnyText(t *testing.T) {
	t.Parallel()
	c := state.New("agent.a", "t", "")
	c.Append(model.User("half \xff a character"), start, 0)
	c.Doc.PendingToolCalls = []aaif.PendingToolCall{{ID: "\xff", ToolName: "t", Arguments: []byte(`{"id": 12345678901234567890, "ok": [1.50, 1e2]}`)}}
	c.Doc.Variables = []byte(`{"n":0.1234567890123456789}`)
	c.Mesh.Deadline = start.Add(1<<62).Add(1<<62).AddDate(8000, 0, 0)
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := state.Codec{}.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if got.Doc.Conversation[0].Content != "half \uFFFD a character" {
		t.Errorf("content %q", got.Doc.Conversation[0].Content)
	}
	if a := string(got.Doc.PendingToolCalls[0].Arguments); a != `{"id":"12345678901234567890","ok":[1.5,100]}` {
		t.Errorf("arguments %s", a)
	}
	if d := got.Mesh.Deadline; d.Year() != 9999 {
		t.Errorf("deadline %v", d)
	}
	if v := string(got.Doc.Variables); v != `{"n":"0.1234567890123456789"}` {
		t.Errorf("variables %s", v)
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	c := state.New("agent.a", "t", "")
	c.SetVariable("b", jsontext.Value(`1`))
	c.SetVariable(`a"`, jsontext.Value(`{"x":[]}`))
	if got := string(c.Doc.Variables); got != `{"a\"":{"x":[]},"b":1}` {
		t.Errorf("variables %s", got)
	}
	if v := c.Variables(); len(v) != 2 || string(v["b"]) != "1" {
		t.Errorf("variables %v", v)
	}
	c.SetVariable(`a"`, nil)
	c.SetVariable("b", nil)
	if c.Doc.Variables != nil {
		t.Errorf("variables %s", c.Doc.Variables)
	}
}

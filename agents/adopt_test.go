package agents

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/state"
)

// A document of another platform is resumed from its state.
func TestDocumentsOfOthersAreAdopted(t *testing.T) {
	t.Parallel()
	const head = `"sc_standard":"SC-006","state_id":"4b0a6f0c-57a0-4a39-8d2b-0d3f3c1a7c11","agent_id":"0b5c7f0e-8d0d-4f0e-9d52-0d3f3c1a7c11","run_id":"7e6d3c1a-8d0d-4f0e-9d52-0d3f3c1a7c11","checkpoint_at":"2026-01-02T03:04:05Z","status":"paused"`
	for name, c := range map[string]struct {
		doc    string
		turns  int // assistant's messages in it
		asked  string
		calls  int
		result string
	}{
		"between turns": {`"conversation":[{"role":"user","content":"go"},{"role":"assistant","content":"looking"},{"role":"tool","content":"7","tool_call_id":"x","tool_name":"lint"}],"iteration":1`,
			1, "system; user go; assistant looking x:lint; tool 7", 0, `{"text":"turn 1"}`},
		"before the first turn":         {`"conversation":[{"role":"user","content":"go"}]`, 0, "system; user go", 0, `{"text":"turn 0"}`},
		"before anything":               {`"iteration":0`, 0, "system; user go", 0, `{"text":"turn 0"}`},
		"with the answer":               {`"conversation":[{"role":"user","content":"go"},{"role":"assistant","content":"here"}]`, 1, "", 0, `{"text":"here"}`},
		"with a prompt of its own":      {`"conversation":[{"role":"system","content":"be X"},{"role":"user","content":"go"}]`, 0, "system; system be X; user go", 0, `{"text":"turn 0"}`},
		"tool messages that name none":  {`"conversation":[{"role":"user","content":"go"},{"role":"tool","content":"7"},{"role":"tool","content":"8"}]`, 1, "system; user go; assistant adopted_1:unknown adopted_2:unknown; tool 7; tool 8", 0, `{"text":"turn 1"}`},
		"a call that waits":             {`"conversation":[{"role":"user","content":"go"},{"role":"assistant","content":"looking"}],"pending_tool_calls":[{"id":"y","tool_name":"pay","arguments":{"a":1}}]`, 1, `system; user go; assistant looking y:pay; tool {"pay":K}`, 1, `{"text":"turn 1"}`},
		"one of two calls is done":      {`"conversation":[{"role":"user","content":"go"},{"role":"assistant","content":""},{"role":"tool","content":"7","tool_call_id":"x","tool_name":"lint"}],"pending_tool_calls":[{"id":"y","tool_name":"pay","arguments":{},"status":"pending"}]`, 1, `system; user go; assistant x:lint y:pay; tool 7; tool {"pay":K}`, 1, `{"text":"turn 1"}`},
		"a call that had begun":         {`"conversation":[{"role":"user","content":"go"}],"pending_tool_calls":[{"id":"y","tool_name":"pay","arguments":{},"status":"in_flight"}]`, 1, "system; user go; assistant y:pay; tool timed out: " + lostWords, 0, `{"text":"turn 1"}`},
		"one that waits for a callback": {`"conversation":[{"role":"user","content":"go"}],"pending_tool_calls":[{"id":"y","tool_name":"lint","arguments":{},"status":"awaiting_result"}]`, 1, `system; user go; assistant y:lint; tool {"lint":K}`, 1, `{"text":"turn 1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cp := new(state.Checkpoint)
			if err := jsonv2.Unmarshal([]byte(`{`+head+`,`+c.doc+`}`), &cp.Doc); err != nil {
				t.Fatal(err)
			}
			w := newWorkbench(t, Options{LostCalls: map[string]LostCall{AnyTool: LostTimeOut}},
				modeltest.Turn{Text: "turn 0"}, modeltest.Turn{Text: "turn 1"}, modeltest.Turn{Text: "turn 2"})
			cp.Mesh.Entity, cp.Mesh.TaskID, cp.Mesh.Format = w.task.Envelope.To, w.task.Envelope.ID, state.Format
			p := newPaper(t, cp)
			payload, err := w.work(p)
			if err != nil || payload != c.result {
				t.Errorf("%s, %v; want %s", payload, err, c.result)
			}
			calls := w.take()
			if len(calls) != c.calls {
				t.Errorf("calls %v, want %d", calls, c.calls)
			}
			var asked []string
			for _, r := range w.model.Requests() {
				for _, m := range r.Messages {
					s := string(m.Role)
					if text := m.Content; text != "" && text != w.loop.system {
						s += " " + text
					}
					for _, c := range m.ToolCalls {
						s += " " + c.ID + ":" + c.Name
					}
					for key := range calls {
						raw, _ := json.Marshal(key)
						s = strings.ReplaceAll(s, string(raw), "K")
					}
					asked = append(asked, s)
				}
			}
			if got := strings.Join(asked, "; "); got != c.asked {
				t.Errorf("the model was asked\n%s\nwant\n%s", got, c.asked)
			}
			end := p.next()
			wantTurns := c.turns
			if c.asked != "" {
				wantTurns++
			}
			if n := int(end.Doc.Iteration.Int64()); n != wantTurns {
				t.Errorf("iteration %d, want %d", n, wantTurns)
			}
			if end.Doc.Conversation[0].Content != w.loop.system || len(end.Doc.PendingToolCalls) != 0 {
				t.Errorf("the document ends as %+v", end.Doc)
			}
		})
	}
}

// The messages of another platform keep the time at which they were produced, or have none.
func TestTimesOfAdoptedMessagesAreKept(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{}, modeltest.Turn{}, modeltest.Turn{Text: "done"})
	cp := &state.Checkpoint{Doc: aaif.State{
		Standard: "SC-006", StateID: "4b0a6f0c-57a0-4a39-8d2b-0d3f3c1a7c11", AgentID: "0b5c7f0e-8d0d-4f0e-9d52-0d3f3c1a7c11", RunID: "7e6d3c1a-8d0d-4f0e-9d52-0d3f3c1a7c11",
		CheckpointAt: "2026-01-02T03:04:05Z", Status: aaif.RunPaused, Conversation: []aaif.Message{
			{Role: aaif.MessageUser, Content: "go", Timestamp: "2026-01-01T00:00:01Z"},
			{Role: aaif.MessageTool, Content: "7", Timestamp: "2026-01-01T00:00:02+01:00"}, // of a turn that is not in the document
			{Role: aaif.MessageUser, Content: "go"},
		},
	}}
	cp.Mesh.Entity, cp.Mesh.TaskID, cp.Mesh.Format = w.task.Envelope.To, w.task.Envelope.ID, state.Format
	p := newPaper(t, cp)
	if _, err := w.work(p); err != nil {
		t.Fatal(err)
	}
	want := []string{"made", "2026-01-01T00:00:01Z", "made", "2026-01-01T00:00:02+01:00", "", "made"} // the system prompt, and the calls of the turn
	for i, m := range p.next().Doc.Conversation {
		if at := m.Timestamp; i >= len(want) || at != want[i] && (want[i] != "made" || at < "2026-01-02") {
			t.Errorf("message %d, %s %q, has the time %q", i, m.Role, m.Content, at)
		}
	}
}

// The callback_url of another platform's call stays in the document while the
// call is open: the next platform may be able to receive the callback.
func TestACallbackOfAnotherPlatformIsKept(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{LostCalls: map[string]LostCall{AnyTool: LostAsk}})
	p := newPaper(t, paysElsewhere(w, aaif.PendingToolCall{Status: aaif.ToolCallAwaitingResult, CallbackURL: "https://conveyor.example/y"}))
	for range 2 { // as it came, and from the ledger
		if _, err := w.work(p); err == nil {
			t.Fatal("it did not park")
		}
		end := p.next()
		if calls := end.Doc.PendingToolCalls; end.Doc.Status != aaif.RunAwaitingApproval || len(calls) != 1 || calls[0].CallbackURL != "https://conveyor.example/y" {
			t.Fatalf("status %s, calls %+v", end.Doc.Status, calls)
		}
		p = newPaper(t, end)
	}
}

// paysElsewhere is a run of another platform whose call of pay is open.
func paysElsewhere(w *workbench, call aaif.PendingToolCall) *state.Checkpoint {
	call.ID, call.ToolName, call.Arguments = "y", "pay", []byte(`{}`)
	cp := &state.Checkpoint{Doc: aaif.State{
		Standard: "SC-006", StateID: "4b0a6f0c-57a0-4a39-8d2b-0d3f3c1a7c11", AgentID: "0b5c7f0e-8d0d-4f0e-9d52-0d3f3c1a7c11", RunID: "7e6d3c1a-8d0d-4f0e-9d52-0d3f3c1a7c11",
		CheckpointAt: "2026-01-02T03:04:05Z", Status: aaif.RunAwaitingToolResult, Conversation: []aaif.Message{{Role: aaif.MessageUser, Content: "go"}},
		PendingToolCalls: []aaif.PendingToolCall{call},
	}}
	cp.Mesh.Entity, cp.Mesh.TaskID, cp.Mesh.Format = w.task.Envelope.To, w.task.Envelope.ID, state.Format
	return cp
}

// The time at which another platform made a call stays in the document while the call is
// open. A call without one has none here either.
func TestTheTimeOfAnotherPlatformsCallIsKept(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"2026-01-02T04:04:04+01:00": "2026-01-02T03:04:04.000000Z", "": "", "yesterday": ""} {
		w := newWorkbench(t, Options{LostCalls: map[string]LostCall{AnyTool: LostAsk}})
		p := newPaper(t, paysElsewhere(w, aaif.PendingToolCall{Status: aaif.ToolCallInFlight, SubmittedAt: given}))
		for range 2 { // as it came, and from the ledger
			if _, err := w.work(p); err == nil {
				t.Fatal("it did not park")
			}
			end := p.next()
			if calls := end.Doc.PendingToolCalls; len(calls) != 1 || calls[0].SubmittedAt != want {
				t.Errorf("submitted at %q: calls %+v", given, calls)
			}
			p = newPaper(t, end)
		}
	}
}

// The turns that another worker took count.
func TestMaxIterationsHoldsForTheWholeRun(t *testing.T) {
	t.Parallel()
	for turns, want := range map[string]string{"4": "", "5": "E_MAX_ITERATIONS", "9": "E_MAX_ITERATIONS", "1e300": "E_MAX_ITERATIONS"} {
		w := newWorkbench(t, Options{}, modeltest.Turn{Text: "done"})
		cp := w.begin()
		r := &progress{phase: phaseModel, messages: []model.Message{model.User("go")}}
		if err := r.save(cp); err != nil {
			t.Fatal(err)
		}
		cp.Doc.Iteration = aaif.Number(turns)
		_, err := w.work(newPaper(t, cp))
		if got := ""; err != nil {
			if got = err.Error(); want == "" || !strings.HasPrefix(got, want) {
				t.Errorf("after %s turns: %v, want %s", turns, err, want)
			}
		} else if want != "" {
			t.Errorf("after %s turns: no error, want %s", turns, want)
		}
	}
}

// A run goes on under the system prompt of the worker that has it: constraints that were deployed
// while it waited hold, and not those of the mesh from which it was transferred.
func TestAResumedRunIsUnderThisWorkersPrompt(t *testing.T) {
	t.Parallel()
	handed := "\n\n" + fmt.Sprintf(handedPrompt, "human.ada")
	for name, c := range map[string]struct {
		first   []model.Message // before the task
		handed  bool
		renewed bool
	}{
		"another prompt":                   {[]model.Message{model.System("old")}, false, true},
		"no prompt":                        {nil, false, true},
		"another prompt, delegated":        {[]model.Message{model.System("old" + handed)}, true, true},
		"a prompt of another agent's also": {[]model.Message{model.System("old"), model.System("foreign")}, false, true},
		"the same prompt":                  {[]model.Message{model.System("SELF")}, false, false},
		"the same prompt, delegated":       {[]model.Message{model.System("SELF" + handed)}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkbench(t, Options{}, modeltest.Turn{Calls: []model.ToolCall{wish("1", "lint")}}, modeltest.Turn{Text: "done"})
			for i := range c.first {
				c.first[i].Content = strings.ReplaceAll(c.first[i].Content, "SELF", w.loop.system)
			}
			cp := w.begin()
			r := &progress{phase: phaseModel, messages: append(c.first, model.User("go"))}
			if err := r.save(cp); err != nil {
				t.Fatal(err)
			}
			for i := range cp.Doc.Conversation {
				cp.Doc.Conversation[i].Timestamp = "2026-01-01T00:00:01Z"
			}
			p := newPaper(t, cp)
			if _, err := w.work(p); err != nil {
				t.Fatal(err)
			}
			want := w.loop.system
			if c.handed {
				want += handed
			}
			asked := w.model.Requests()[0].Messages
			if asked[0].Role != model.RoleSystem || asked[0].Content != want || len(asked) != max(1, len(c.first))+1 {
				t.Errorf("the model was asked %+v", asked)
			}
			kept := p.next().Doc.Conversation
			if kept[0].Content != want || (kept[0].Timestamp == "2026-01-01T00:00:01Z") == c.renewed {
				t.Errorf("the first message that is stored is %+v", kept[0])
			}
			if task := kept[len(asked)-1]; task.Content != "go" || task.Timestamp != "2026-01-01T00:00:01Z" {
				t.Errorf("the task that is stored is %+v", task)
			}
			if len(p.steps) == 0 || p.steps[0].Kind != state.StepModel {
				t.Errorf("steps %+v", p.steps)
			}
		})
	}
}

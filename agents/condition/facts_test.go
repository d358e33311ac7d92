package condition_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
)

func TestFacts(t *testing.T) {
	t.Parallel()
	half := 0.5
	task := &condition.Task{ID: "t1", Intent: "code.review", From: "agent.a", To: "agent.b", Corr: "c1", Priority: "normal", Attempt: 1}
	const taskJSON = `"task":{"attempt":1,"corr":"c1","from":"agent.a","id":"t1","intent":"code.review","priority":"normal","to":"agent.b"}`
	const state = `"state":{"cost_usd":0,"input_tokens":0,"iteration":0,"output_tokens":0,"run":"r1","status":"running"}`
	for _, tt := range []struct {
		name  string
		facts condition.Facts
		want  string
	}{
		{"nothing", condition.Facts{}, `{"input":{}}`},
		{"a payload", condition.Facts{Input: json.RawMessage(`{"action":"opened","n":1}`)}, `{"action":"opened","input":{"action":"opened","n":1},"n":1}`},
		{"no object", condition.Facts{Input: json.RawMessage(`[1]`)}, `{"input":[1]}`},
		{
			"a payload that names what the runtime names",
			condition.Facts{Input: json.RawMessage(`{"input":1,"output":2,"state":"open","task":3}`), Task: task, Output: json.RawMessage(`{"r":1}`)},
			`{"input":{"input":1,"output":2,"state":"open","task":3},"output":{"r":1},"state":"open",` + taskJSON + `}`,
		},
		{
			"in a run, where the runtime knows none of it yet",
			condition.Facts{Input: json.RawMessage(`{"output":2,"confidence":1,"variables":3,"outputs":4,"task_input":5,"tool":6}`), State: &condition.State{Run: "r1", Status: "running"}},
			`{"input":{"confidence":1,"output":2,"outputs":4,"task_input":5,"tool":6,"variables":3},"outputs":4,` + state + `,"task_input":5,"tool":6,"variables":3}`,
		},
		{
			"in a team's run",
			condition.Facts{Input: json.RawMessage(`{"output":2,"confidence":1,"variables":3,"outputs":4,"task_input":5,"tool":6}`), State: &condition.State{Run: "r1", Status: "running"}, Team: true},
			`{"input":{"confidence":1,"output":2,"outputs":4,"task_input":5,"tool":6,"variables":3},` + state + `,"tool":6}`,
		},
		{
			"a task in the payload",
			condition.Facts{Input: json.RawMessage(`{"task":{"type":"code_review","from":"human.boss"}}`), Task: task},
			`{"input":{"task":{"from":"human.boss","type":"code_review"}},` + strings.TrimSuffix(taskJSON, "}") + `,"type":"code_review"}}`,
		},
		{
			"a tool call",
			condition.Facts{
				Input: json.RawMessage(`{"confidence":1,"tool":{"writes":false},"task":{"safe":true}}`), Task: task,
				Tool: &condition.Tool{Name: "pay", Protocol: "http", Writes: true, Arguments: json.RawMessage(`{"amount":5}`)},
			},
			`{"input":{"confidence":1,"task":{"safe":true},"tool":{"writes":false}},` + taskJSON + `,"tool":{"arguments":{"amount":5},"name":"pay","protocol":"http","writes":true}}`,
		},
		{
			"an event, a run",
			condition.Facts{
				Input: json.RawMessage(`{"confidence":1}`),
				Event: &condition.Event{Type: "webhook", Name: "push", Source: "/hook", At: "2026-11-20T09:30:00Z"},
				State: &condition.State{Run: "r1", Status: "running", Iteration: 2, InputTokens: 3, OutputTokens: 4, CostUSD: 0.25, Confidence: &half},
			},
			`{"confidence":0.5,"event":{"at":"2026-11-20T09:30:00Z","name":"push","source":"/hook","type":"webhook"},"input":{"confidence":1},` +
				`"state":{"confidence":0.5,"cost_usd":0.25,"input_tokens":3,"iteration":2,"output_tokens":4,"run":"r1","status":"running"}}`,
		},
	} {
		v, err := tt.facts.Value()
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got, err := v.MarshalJSON(); err != nil || string(got) != tt.want {
			t.Errorf("%s: %v\n%s, want\n%s", tt.name, err, got, tt.want)
		}
	}
	for _, f := range []condition.Facts{{Input: json.RawMessage(`{`)}, {Output: json.RawMessage(`{"a":1,"a":1}`)}, {Tool: &condition.Tool{Arguments: json.RawMessage(`nope`)}}} {
		if _, err := f.Value(); !errors.Is(err, condition.ErrValue) {
			t.Error(err)
		}
	}
}

// One value serves many programs at once.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	v, err := condition.Facts{Input: json.RawMessage(`{"l":[3,1,2],"o":{"b":1,"a":2}}`)}.Value()
	if err != nil {
		t.Fatal(err)
	}
	for lang, expr := range map[aaif.Language]string{
		aaif.LangJSONPath:  "$.l[?match('a', 'a|b') && @ == $.l[0]]",
		aaif.LangJMESPath:  "sort_by(l, &@)[0] == `1` && o.* | [0] == `2`",
		aaif.LangCEL:       "l.exists(x, x == 3) && o.map(k, k)[0] == 'a'",
		aaif.LangJSONLogic: `{"==":[{"reduce":[{"var":"l"},{"+":[{"var":"current"},{"var":"accumulator"}]},0]},6]}`,
	} {
		p, err := condition.Compile(condition.Expression(lang, expr), condition.Options{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		for range 8 {
			go func() {
				for range 50 {
					if ok, err := p.Eval(context.Background(), v); !ok || err != nil {
						done <- errors.Join(errors.New(expr), err)
						return
					}
				}
				done <- nil
			}()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(lang, err)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const text = `{"sc_standard":"SC-006","sc_version":"3.4.0","agent":{"name":"A","goal":"g","orchestration":{
 "subagents":[{"ref":"6a6f0e0c-0b7a-4b0e-9d55-2f6b2c7d7f10","when":{"lang":"jsonpath","expr":"task.type"}},
              {"ref":"6a6f0e0c-0b7a-4b0e-9d55-2f6b2c7d7f11","when":{"lang":"always"}}],
 "handoff":[{"condition":"when it is about money","target_agent":"x"},{"condition":{"lang":"cel","expr":true},"target_agent":"x"}]},
 "events":{"triggers":[{"type":"webhook","webhook_path":"/h","filter":{"lang":"jsonlogic","expr":{"nothing":1}}}]},
 "compliance":{"human_in_the_loop":{"enabled":true,"trigger":{"lang":"cel","expr":"confidence < 0.8"}}}}}`
	doc, err := aaif.Parse([]byte(text), aaif.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range condition.Check(doc) {
		if p.Severity != aaif.SeverityError || p.Rule != condition.RuleCondition {
			t.Error(p)
		}
		got = append(got, strings.TrimSuffix(p.String(), " ("+p.Hint+")"))
	}
	want := []string{
		`5:91: /agent/events/triggers/0/filter/expr: jsonlogic: jsonlogic has no operator "nothing"`,
		`4:98: /agent/orchestration/handoff/1/condition/expr: cel: a cel expression is text, in quotes`,
		`2:87: /agent/orchestration/subagents/0/when/expr: jsonpath: at 1: a query begins with $`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A rule of jsonlogic is JSON; as text it may be JSON, or stand for itself.
func TestRulesAsText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		expr    string
		ok, bad bool
	}{
		{`{"==":[1,1]}`, true, false},
		{`"{\"==\":[1,2]}"`, false, false},
		{`"[]"`, false, false},
		{`"{\"==\":[1,2}"`, false, true},
		{`"apple"`, true, false},
		{`"0"`, true, false},
		{`0`, false, false},
		{`null`, false, false},
		{``, false, true},
	} {
		p, err := condition.Compile(aaif.Condition{Lang: aaif.LangJSONLogic, Expr: []byte(tt.expr)}, condition.Options{})
		if (err != nil) != tt.bad {
			t.Errorf("%s: %v", tt.expr, err)
		}
		if err != nil {
			continue
		}
		if ok, err := p.Eval(context.Background(), condition.Value{}); ok != tt.ok || err != nil {
			t.Errorf("%s: %v, %v", tt.expr, ok, err)
		}
	}
}

package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// member is an agent that appends its name to the text it is sent, and counts.
type member struct {
	name  string
	calls atomic.Int64
	work  func(task *mesh.Task, text string) (string, error) // nil: text + name
	mu    sync.Mutex
	tasks []*envelope.Envelope
}

func (m *member) agent() *agents.Agent {
	return &agents.Agent{Agent: mesh.Agent{Entity: "agent." + m.name, Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		m.calls.Add(1)
		m.mu.Lock()
		m.tasks = append(m.tasks, task.Envelope)
		m.mu.Unlock()
		var in struct{ Text string }
		if err := json.Unmarshal(task.Envelope.Payload, &in); err != nil {
			return nil, err
		}
		out := in.Text + " " + m.name
		if m.work != nil {
			var err error
			if out, err = m.work(task, in.Text); err != nil {
				return nil, err
			}
		}
		return json.RawMessage(fmt.Sprintf(`{"text":%q,"usage":{"input_tokens":2,"output_tokens":1}}`, out)), nil
	})}}
}

// lead is an agent whose document has an orchestration block.
func lead(t testing.TB, orchestration, beside string) *agents.Agent {
	t.Helper()
	d := definition(t, `{"sc_standard":"SC-006","agent":{"name":"Lead","goal":"Lead.","orchestration":`+orchestration+`}`+beside+`}`)
	return newAgent(t, d, agents.Options{})
}

const builtinScript = `,"model":{"provider":"custom","provider_id":"builtin","preferred":"script","params":{"extended":{"script":%s}}}`

func TestAPipelineLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"one", "two", "three"} {
		w.host((&member{name: name}).agent())
	}
	w.host(lead(t, `{"pipeline":["agent.one","b","agent.three"],"subagents":[{"ref":"agent.two","alias":"b"}]}`, ""))
	got := w.send("agent.lead", `{"text":"zero"}`, sending{})
	if want := `{"text":"zero one two three","usage":{"input_tokens":6,"output_tokens":3}}`; got.payload != want {
		t.Fatalf("%s %v, want %s", got.payload, got.err, want)
	}
}

func TestAStepIsPartOfTheTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := &member{name: "one"}
	w.host(one.agent())
	w.host(lead(t, `{"pipeline":["agent.one"]}`, ""))
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.lead", "test.run", json.RawMessage(`{"text":"zero"}`))
	task.Priority, task.Requires = envelope.PriorityHigh, json.RawMessage(`{"format":"text"}`)
	if _, err := w.node.Send(t.Context(), task, mesh.SendOptions{}); err != nil {
		t.Fatal(err)
	}
	child := one.tasks[0]
	if child.From != "agent.lead" || child.Corr != task.Corr || child.ReplyTo != task.ID || child.Priority != envelope.PriorityHigh || child.Intent != "agent.one.run" {
		t.Errorf("child %+v", child)
	}
	if !strings.Contains(string(child.Requires), `"format":"text"`) {
		t.Errorf("requires %s: what is demanded of the result is demanded of the last step", child.Requires)
	}
}

func TestWhatAStepIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"one", "two"} {
		w.host((&member{name: name}).agent())
	}
	w.host(lead(t, `{"pipeline":["agent.one","agent.two"]}`,
		`,"x-aeemesh":{"orchestration":{"steps":{"agent.two":{"input":{"lang":"jmespath","expr":"{text: join('+', [task_input.text, outputs.\"agent.one\".text, input.text])}"}}}}}`))
	got := w.send("agent.lead", `{"text":"zero"}`, sending{})
	if want := `{"text":"zero+zero one+zero one two","usage":{"input_tokens":4,"output_tokens":2}}`; got.payload != want {
		t.Fatalf("%s %v, want %s", got.payload, got.err, want)
	}
}

// What members claim to have used is believed within what is plausible: a sum that turns negative
// would give the team room in its budget.
func TestImplausibleUsageOfMembersIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"one", "two"} {
		w.host(&agents.Agent{Agent: mesh.Agent{Entity: "agent." + name, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			return json.RawMessage(`{"text":"a","usage":{"input_tokens":9223372036854775807,"output_tokens":-5,"cost_usd":9223372036.5}}`), nil
		})}})
	}
	w.host(lead(t, `{"pipeline":["agent.one","agent.two"]}`, ""))
	if got := w.send("agent.lead", `{"text":"zero"}`, sending{}); got.payload != `{"text":"a","usage":{"input_tokens":2199023255552,"cost_usd":1000000}}` {
		t.Errorf("%s %v", got.payload, got.err)
	}
}

// The document decides about a failed step.
func TestAStepThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host((&member{name: "one"}).agent())
	w.host((&member{name: "spare"}).agent())
	w.host((&member{name: "bad", work: func(*mesh.Task, string) (string, error) {
		return "", envelope.Errorf(envelope.CodeTool, "the saw is blunt")
	}}).agent())
	for i, tt := range []struct{ onError, want string }{
		{"", "E_TOOL: step agent.bad: the saw is blunt"},
		{"skip", "zero one one"},
		{"fallback", "zero one spare one"},
	} {
		d := definition(t, fmt.Sprintf(`{"sc_standard":"SC-006","agent":{"name":"Lead %d","goal":"Lead.","orchestration":{"pipeline":["agent.one","agent.bad","agent.one"],
			"subagents":[{"ref":"agent.spare","role":"fallback"}]}},"x-aeemesh":{"orchestration":{"steps":{"agent.bad":{"on_error":%q}}}}}`, i, tt.onError))
		w.host(newAgent(t, d, agents.Options{}))
		got := w.send(fmt.Sprintf("agent.lead_%d", i), `{"text":"zero"}`, sending{})
		text := got.payload
		if got.err != nil {
			text = string(got.err.Code) + ": " + got.err.Message
		}
		if !strings.Contains(text, tt.want) {
			t.Errorf("on_error %q: %s, want %s", tt.onError, text, tt.want)
		}
	}
}

// A step that the fallback did has an output under its own name too.
func TestAFallbacksOutputIsTheSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, m := range []*member{{name: "one"}, {name: "spare"}, {name: "bad", work: func(*mesh.Task, string) (string, error) {
		return "", envelope.Errorf(envelope.CodeTool, "the saw is blunt")
	}}} {
		w.host(m.agent())
	}
	w.host(lead(t, `{"pipeline":["b","agent.one"],"subagents":[{"ref":"agent.bad","alias":"b"},{"ref":"agent.spare","role":"fallback"}]}`,
		`,"x-aeemesh":{"orchestration":{"steps":{"b":{"on_error":"fallback"},"agent.one":{"input":{"lang":"jmespath","expr":"{text: outputs.b.text}"}}}}}`))
	got := w.send("agent.lead", `{"text":"zero"}`, sending{})
	if !strings.Contains(got.payload, `"zero spare one"`) {
		t.Errorf("%s %v", got.payload, got.err)
	}
}

func TestARouterTakesTheFirstThatHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"billing", "law", "rest"} {
		w.host((&member{name: name}).agent())
	}
	block := `{"role":"router","subagents":[
		{"ref":"agent.rest","alias":"rest"%s},
		{"ref":"agent.law","alias":"law","when":{"lang":"cel","expr":"input.text.contains('court')"}},
		{"ref":"agent.billing","alias":"billing","when":{"lang":"jmespath","expr":"contains(input.text, 'bill')"}}]}`
	w.host(lead(t, fmt.Sprintf(block, `,"role":"fallback"`), ""))
	for text, want := range map[string]string{"a bill in court": "law", "a bill": "billing", "hello": "rest"} {
		got := w.send("agent.lead", fmt.Sprintf(`{"text":%q}`, text), sending{})
		if !strings.Contains(got.payload, text+" "+want) {
			t.Errorf("%s: %s %v, want %s", text, got.payload, got.err, want)
		}
	}
	d := definition(t, `{"sc_standard":"SC-006","agent":{"name":"Strict","goal":"Lead.","orchestration":`+fmt.Sprintf(block, `,"when":{"lang":"never"}`)+`}}`)
	w.host(newAgent(t, d, agents.Options{}))
	if got := w.send("agent.strict", `{"text":"hello"}`, sending{}); got.err == nil || got.err.Code != envelope.CodeNoRoute {
		t.Errorf("no condition holds: %s %v", got.payload, got.err)
	}
}

// If no subagent has a condition, the agent's model chooses; an answer that is
// not a subagent gets one repair turn.
func TestARoutersModelChooses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"billing", "law"} {
		w.host((&member{name: name}).agent())
	}
	for i, tt := range []struct{ script, fallback, want string }{
		{`[{"json":{"agent":"law"}}]`, "", "hello law"},
		{`[{"say":"law"}]`, "", "hello law"},
		{`[{"say":"\"law\""}]`, "", "hello law"},
		{`[{"json":{"agent":"nobody"}},{"json":{"agent":"law","reason":"it is about a court"}}]`, "", "hello law"},
		{`[{"say":"neither of them"},{"json":{"agent":"nobody"}}]`, "", "E_NO_ROUTE"},
		{`[{"say":"neither of them"},{"json":{"agent":"nobody"}}]`, `,{"ref":"agent.billing","alias":"rest","role":"fallback"}`, "hello billing"},
	} {
		d := definition(t, fmt.Sprintf(`{"sc_standard":"SC-006","agent":{"name":"Chooser %d","goal":"Lead."`+builtinScript+`,
			"orchestration":{"role":"router","subagents":[{"ref":"agent.billing","alias":"billing"},{"ref":"agent.law","alias":"law"}%s]}}}`, i, tt.script, tt.fallback))
		w.host(newAgent(t, d, agents.Options{}))
		got := w.send(fmt.Sprintf("agent.chooser_%d", i), `{"text":"hello"}`, sending{})
		text := got.payload
		if got.err != nil {
			text = string(got.err.Code)
		}
		if !strings.Contains(text, tt.want) {
			t.Errorf("%s: %s %v, want %s", tt.script, text, got.err, tt.want)
		}
	}
}

// A tree eight deep, over the durable lane, all in one corr: each is told by the
// one above, and the result comes up through all of them.
func TestATreeOfDepthEight(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	leaf := &member{name: "leaf"}
	l.host(leaf.agent(), nil)
	below := "agent.leaf"
	for i := 7; i >= 1; i-- {
		d := definition(t, fmt.Sprintf(`{"sc_standard":"SC-006","agent":{"name":"Level %d","goal":"Lead.","orchestration":{"pipeline":[%q]}}}`, i, below))
		l.host(newAgent(t, d, agents.Options{}), nil)
		below = fmt.Sprintf("agent.level_%d", i)
	}
	task := l.task(below, `{"text":"deep"}`, "")
	l.submit(task)
	if got := l.result(task); !strings.Contains(got, `"text":"deep leaf"`) {
		t.Fatal(got)
	}
	if n := leaf.calls.Load(); n != 1 {
		t.Errorf("the leaf was called %d times", n)
	}
	at := leaf.tasks[0]
	var requires struct{ Tree struct{ Depth int } }
	if err := json.Unmarshal(at.Requires, &requires); err != nil || requires.Tree.Depth != 7 || at.Corr != task.Corr {
		t.Errorf("the leaf's task: %s, corr %s, want depth 7 and corr %s", at.Requires, at.Corr, task.Corr)
	}
}

func TestAModelLeadsItsSubagents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := &member{name: "one"}
	w.host(one.agent())
	script := fmt.Sprintf(builtinScript, `[{"call":[{"name":"first","arguments":{"text":"dig"}},{"name":"invoke_subagent","arguments":{"agent":"first","task":"fill"}}]},{"say":"done"}]`)
	d := definition(t, `{"sc_standard":"SC-006","agent":{"name":"Lead","goal":"Lead."`+script+`,
		"tools":[{"name":"invoke_subagent","description":"x","parameters_schema":{"type":"object"}}],
		"orchestration":{"role":"orchestrator","subagents":[{"ref":"agent.one","alias":"first"}]}}}`)
	w.host(newAgent(t, d, agents.Options{}))
	got := w.send("agent.lead", `{"text":"zero"}`, sending{})
	if !strings.Contains(got.payload, `"text":"done"`) || one.calls.Load() != 2 {
		t.Fatalf("%s %v, %d calls", got.payload, got.err, one.calls.Load())
	}
}

// In a team that its model leads, members' conditions and rules of handoffs see what the model and
// the members have used.
func TestAModelLedTeamsConditionsSeeItsUsage(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			second := &member{name: "two"}
			for _, m := range []*member{{name: "one"}, second, {name: "expert"}} {
				l.serve(m.agent())
			}
			call := func(id, name string) modeltest.Turn {
				return modeltest.Turn{Calls: []model.ToolCall{{ID: id, Name: name, Arguments: json.RawMessage(`{"text":"dig"}`)}}, Usage: model.Usage{InputTokens: 100, OutputTokens: 10}}
			}
			// Each member uses two tokens of input and one of output.
			l.hosted("agent.lead", `"orchestration":{"subagents":[{"ref":"agent.one","alias":"one"},
				{"ref":"agent.two","alias":"two","when":{"lang":"cel","expr":"state.input_tokens == 202.0 && state.output_tokens == 21.0"}}],
				"handoff":[{"condition":{"lang":"cel","expr":"has(tool.name) && tool.name == 'two' && state.input_tokens == 204.0"},"target_agent":"agent.expert"}]}`,
				agents.Options{}, call("1", "one"), call("2", "two"), says("done"))
			reply, err := l.ask(durable, "agent.lead", `{"text":"go"}`)
			if err != nil {
				t.Fatal(err)
			}
			if second.calls.Load() != 1 || !strings.Contains(string(reply.Payload), "expert") {
				t.Errorf("the member was called %d times; the answer is %s", second.calls.Load(), reply.Payload)
			}
		})
	}
}

// led is an agent whose model plays a script and leads research, hold and writer. The
// writer is called if research has answered, with its latest output.
func led(t testing.TB, script string) *agents.Agent {
	t.Helper()
	return newAgent(t, definition(t, `{"sc_standard":"SC-006","agent":{"name":"Lead","goal":"Lead."`+fmt.Sprintf(builtinScript, script)+`,
		"orchestration":{"role":"orchestrator","subagents":[{"ref":"agent.research","alias":"research"},{"ref":"agent.hold","alias":"hold"},
			{"ref":"agent.writer","alias":"writer","when":{"lang":"jsonpath","expr":"$.outputs.research.text"}}]}},
		"x-aeemesh":{"orchestration":{"steps":{"writer":{"input":{"lang":"jmespath","expr":"{text: join('+', [input.text, outputs.research.text, output.text])}"}}}}}}`), agents.Options{})
}

// What members of a team that its model leads have answered can be used in conditions
// and mappings, as in every other pattern.
func TestAModelLedTeamHasTheOutputsOfItsMembers(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			writer := &member{name: "writer"}
			for _, m := range []*member{{name: "research"}, {name: "hold"}, writer} {
				l.serve(m.agent())
			}
			l.serve(led(t, `[{"call":[{"name":"writer","arguments":{"text":"too soon"}}]},{"call":[{"name":"research","arguments":{"text":"dig"}}]},
				{"call":[{"name":"research","arguments":{"text":"dig deeper"}}]},{"call":[{"name":"hold","arguments":{"text":"wait"}}]},
				{"call":[{"name":"writer","arguments":{"text":"write"}}]},{"say":"done"}]`))
			task := l.task("agent.lead", `{"text":"zero"}`, "")
			if durable {
				l.submit(task)
				if got := l.result(task); !strings.Contains(got, `"text":"done"`) {
					t.Fatal(got)
				}
			} else if _, err := l.client.Send(l.ctx(), task, mesh.SendOptions{}); err != nil {
				t.Fatal(err)
			}
			if len(writer.tasks) != 1 {
				t.Fatalf("the writer was called %d times", len(writer.tasks))
			}
			if got, want := string(writer.tasks[0].Payload), `{"text":"write+dig deeper research+wait hold"}`; got != want {
				t.Errorf("the writer was sent %s, want %s", got, want)
			}
		})
	}
}

// A worker that goes on with a team that its model leads has the outputs that the one
// before it had, also those of the turn in which that one was killed.
func TestTheOutputsOfAModelLedTeamSurviveItsWorker(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for name, script := range map[string]string{
		"in another turn": `[{"call":[{"name":"research","arguments":{"text":"dig"}}]},{"call":[{"name":"hold","arguments":{"text":"wait"}}]},
			{"call":[{"name":"writer","arguments":{"text":"write"}}]},{"say":"done"}]`,
		"in the same turn": `[{"call":[{"name":"hold","arguments":{"text":"wait"}},{"name":"research","arguments":{"text":"dig"}}]},
			{"call":[{"name":"writer","arguments":{"text":"write"}}]},{"say":"done"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t).shortLeases()
			begun, finish := make(chan struct{}, 8), make(chan struct{})
			hold := &member{name: "hold", work: func(*mesh.Task, string) (string, error) {
				begun <- struct{}{}
				<-finish
				return "held", nil
			}}
			research, writer := &member{name: "research"}, &member{name: "writer"}
			for _, m := range []*member{research, hold, writer} {
				l.host(m.agent(), nil)
			}
			first := l.host(led(t, script), nil)
			task := l.task("agent.lead", `{"text":"zero"}`, `{"evidence":true}`)
			l.submit(task)
			<-begun
			cp := l.until(task, "research has answered", func(cp *state.Checkpoint) bool {
				return len(cp.Doc.SubagentStates) == 1 && strings.Contains(fmt.Sprint(cp.Messages()), "dig research")
			})
			if s := cp.Doc.SubagentStates[0]; s.Alias != "research" || s.Output != nil {
				t.Errorf("subagent_states %+v: the output is in the conversation", s)
			}
			first.kill()
			l.host(led(t, script), nil)
			close(finish)
			got := l.result(task)
			if len(writer.tasks) != 1 {
				t.Fatalf("the writer was called %d times", len(writer.tasks))
			}
			if want := `"evidence_refs":["` + strings.Join([]string{
				"aee.envelope:" + task.ID, "aee.envelope:" + research.tasks[0].ID, "aee.envelope:" + hold.tasks[0].ID, "aee.envelope:" + writer.tasks[0].ID,
			}, `","`); !strings.Contains(got, `"text":"done"`) || !strings.Contains(got, want) {
				t.Errorf("%s, want %s", got, want)
			}
			if got, want := string(writer.tasks[0].Payload), `{"text":"write+dig research+held"}`; got != want {
				t.Errorf("the writer was sent %s, want %s", got, want)
			}
		})
	}
}

// A worker that crashes between two steps, or while it waits for one, causes no
// step to be repeated.
func TestADurablePipelineSurvivesItsWorker(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	l := newLane(t).shortLeases()
	one, three := &member{name: "one"}, &member{name: "three"}
	begun, finish := make(chan struct{}, 8), make(chan struct{})
	two := &member{name: "two", work: func(_ *mesh.Task, text string) (string, error) {
		begun <- struct{}{}
		<-finish
		return text + " two", nil
	}}
	for _, m := range []*member{one, two, three} {
		l.host(m.agent(), nil)
	}
	block := `{"pipeline":["agent.one","agent.two","agent.three"]}`
	first := l.host(lead(t, block, ""), nil)
	task := l.task("agent.lead", `{"text":"zero"}`, "")
	l.submit(task)
	<-begun
	cp := l.until(task, "the first step is committed", func(cp *state.Checkpoint) bool { return len(cp.Doc.SubagentStates) > 0 })
	p := cp.Doc.PipelinePosition
	if p == nil || p.CurrentStep != "agent.two" || len(p.CompletedSteps) != 1 || len(p.RemainingSteps) != 2 {
		t.Errorf("pipeline_position %+v", p)
	}
	if s := cp.Doc.SubagentStates[0]; s.Alias != "agent.one" || s.Status != aaif.SubagentCompleted || string(s.Output) != `{"text":"zero one"}` {
		t.Errorf("subagent_states %+v", s)
	}
	first.kill()
	l.host(lead(t, block, ""), nil)
	close(finish)
	if got, want := l.result(task), `"text":"zero one two three"`; !strings.Contains(got, want) {
		t.Fatalf("%s, want %s", got, want)
	}
	for _, m := range []*member{one, two, three} {
		if n := m.calls.Load(); n != 1 {
			t.Errorf("%s did its step %d times", m.name, n)
		}
	}
}

// The record of a swarm has its members' texts as they are: escapes of HTML would make it too large.
func TestASwarmsRecordIsNotEscaped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	answers := func(answer string) func(*mesh.Task, string) (string, error) {
		return func(*mesh.Task, string) (string, error) { return answer, nil }
	}
	for name, answer := range map[string]string{"one": "yes", "two": "yes", "three": strings.Repeat("<", 250_000)} {
		w.host((&member{name: name, work: answers(answer)}).agent())
	}
	w.host(lead(t, `{"parallel_execution":true,"subagents":[{"ref":"agent.one"},{"ref":"agent.two"},{"ref":"agent.three"}],"consensus":{"strategy":"majority_vote"}}`, ""))
	got := w.send("agent.lead", `{"text":"zero"}`, sending{})
	if !strings.Contains(got.payload, `"dissent":[{"alias":"agent.three","entity":"agent.three","output":{"text":"<<<`) {
		t.Errorf("%.300s %v", got.payload, got.err)
	}
}

// A result that has no room for the record of the swarm is the result without it.
func TestAResultWithoutRoomForASwarmsRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, answer := range map[string]string{
		"values": `{"v":[` + strings.Repeat("1,", envelope.DefaultMaxValues-4) + `1]}`,
		"bytes":  `{"v":"` + strings.Repeat("x", 1<<20-640) + `"}`,
	} {
		for i := range 2 {
			w.host(&agents.Agent{Agent: mesh.Agent{Entity: fmt.Sprintf("agent.%s%d", name, i), Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
				return json.RawMessage(answer), nil
			})}})
		}
		d := definition(t, fmt.Sprintf(`{"sc_standard":"SC-006","agent":{"name":"Lead %s","goal":"Lead.","orchestration":{"parallel_execution":true,"subagents":[{"ref":"agent.%[1]s0","alias":"%[2]s0"},{"ref":"agent.%[1]s1","alias":"%[2]s1"}],"consensus":{"strategy":"majority_vote"}}}}`, name, strings.Repeat("x", 200)))
		w.host(newAgent(t, d, agents.Options{}))
		if got := w.send("agent.lead_"+name, `{"text":"zero"}`, sending{}); got.payload != answer {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got.payload), len(answer), got.err)
		}
	}
}

package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/mesh"
)

// A team delegates its task after the step whose output matches a rule: the
// later steps are not run, and the receiver gets the conversation so far.
func TestATeamHandsOnAfterTheStepThatARuleHoldsFor(t *testing.T) {
	t.Parallel()
	const members = `"subagents":[{"ref":"agent.one","alias":"one"},{"ref":"agent.two","alias":"two"},{"ref":"agent.expert","alias":"expert","when":{"lang":"never"}}],
		"handoff":[{"condition":{"lang":"jmespath","expr":"output.hard"},"target_agent":"expert"}]`
	for name, c := range map[string]struct {
		block string
		said  string // the conversation that the receiver gets
	}{
		"pipeline": {`{"role":"orchestrator","pipeline":["one","two"],` + members + `}`, `user: go|assistant: one: {"hard":true,"by":"agent.one"}`},
		"router":   {`{"role":"router",` + strings.Replace(members, `"alias":"one"`, `"alias":"one","when":{"lang":"always"}`, 1) + `}`, `user: go|assistant: one: {"hard":true,"by":"agent.one"}`},
	} {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s durable=%v", name, durable), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.serve(durable, says(`{"hard":true,"by":"agent.one"}`), "agent.one")
				r.serve(durable, mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
					t.Error("agent.two was asked")
					return json.RawMessage(`{}`), nil
				}), "agent.two")
				r.serve(durable, mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
					c, err := task.HandedState(ctx)
					if err != nil {
						return nil, err
					}
					var said []string
					for _, m := range c.Messages() {
						said = append(said, string(m.Role)+": "+m.Content)
					}
					return json.Marshal(map[string]string{"said": strings.Join(said, "|"), "input": string(task.Input())})
				}), "agent.expert")
				p := plan(t, c.block, "")
				team := orchestrate.New(p, orchestrate.Options{Handoffs: orchestrate.NewHandoffs(definitionOf(t, c.block), orchestrate.HandoffOptions{})})
				r.serve(durable, mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
					res, err := team.Handle(ctx, task, nil)
					return res.Payload, err
				}), boss)
				var got answer
				if durable {
					got = r.result(r.submit(`{"text":"go"}`, ""))
				} else {
					got = r.ask(`{"text":"go"}`, "")
				}
				want, err := json.Marshal(map[string]string{"said": c.said, "input": `{"text":"go"}`})
				if err != nil {
					t.Fatal(err)
				}
				if got.err != nil || got.payload != string(want) {
					t.Errorf("got %s, %v\nwant %s", got.payload, got.err, want)
				}
			})
		}
	}
}

// delegating returns a team with the handoff rules of its block, as a handler.
func delegating(t *testing.T, block, root string) mesh.HandlerFunc {
	return teamWith(plan(t, block, root), nil, orchestrate.Options{Handoffs: orchestrate.NewHandoffs(definitionOf(t, block), orchestrate.HandoffOptions{})})
}

// A team calls no tools, so a rule must not see a member tool that the sender has written.
func TestASenderCannotForgeTheToolOfATeamsRule(t *testing.T) {
	t.Parallel()
	const members = `"subagents":[{"ref":"agent.one","alias":"one","when":{"lang":"always"}}],
		"handoff":[{"condition":{"lang":"jsonpath","expr":"$.tool[?@ == 'escalate']"},"target_agent":"agent.expert"}]`
	for name, block := range map[string]string{
		"pipeline": `{"pipeline":["one"],` + members + `}`,
		"router":   `{"role":"router",` + members + `}`,
		"swarm":    `{"parallel_execution":true,"consensus":{"strategy":"first_success"},` + members + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.serve(false, says(`{"v":1}`), "agent.one")
			r.serve(false, says(`{"v":"forged"}`), "agent.expert")
			r.serve(false, delegating(t, block, ""), boss)
			if got := r.ask(`{"text":"go","tool":{"name":"escalate"}}`, ""); got.err != nil || got.payload != `{"v":1}` {
				t.Errorf("%s, %v", got.payload, got.err)
			}
		})
	}
}

// A skipped step has no output: no rule is evaluated on the next step's input, which may be the
// sender's payload, and no condition or mapping sees that input as the member's output.
func TestASkippedStepHasNoOutput(t *testing.T) {
	t.Parallel()
	const block = `{"pipeline":["one","two"],"subagents":[{"ref":"agent.one","alias":"one","when":{"lang":"jmespath","expr":"easy"}},{"ref":"agent.two","alias":"two"}],
		"handoff":[{"condition":{"lang":"jmespath","expr":"output.hard || outputs.one"},"target_agent":"agent.expert"}]}`
	r := newRig(t)
	r.serve(false, says(`{"v":"of one"}`), "agent.one")
	r.serve(false, mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) { return task.Input(), nil }), "agent.two")
	r.serve(false, says(`{"v":"delegated"}`), "agent.expert")
	r.serve(false, delegating(t, block, extras(`"steps":{"two":{"input":{"lang":"jmespath","expr":"{known: keys(outputs), latest: output, sent: input.text}"}}}`)), boss)
	if got := r.ask(`{"text":"go","hard":true}`, ""); got.err != nil || got.payload != `{"known":[],"latest":null,"sent":"go"}` {
		t.Errorf("%s, %v", got.payload, got.err)
	}
	if got := r.ask(`{"text":"go","easy":true}`, ""); got.err != nil || got.payload != `{"v":"delegated"}` {
		t.Errorf("not skipped: %s, %v", got.payload, got.err)
	}
}

// A mapping passes integers on unchanged, also if a double would change them.
func TestAMappingKeepsNumbers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(false, says(`{"id":9007199254740993}`), "agent.one")
	r.serve(false, mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) { return task.Input(), nil }), "agent.two")
	r.serve(false, delegating(t, `{"pipeline":["one","two"],"subagents":[{"ref":"agent.one","alias":"one"},{"ref":"agent.two","alias":"two"}]}`,
		extras(`"steps":{"two":{"input":{"lang":"jmespath","expr":"{id: outputs.one.id, order: task_input.order}"}}}`)), boss)
	if got := r.ask(`{"order":-12345678901234567891}`, ""); got.err != nil || got.payload != `{"id":9007199254740993,"order":-12345678901234567891}` {
		t.Errorf("%s, %v", got.payload, got.err)
	}
}

func definitionOf(t *testing.T, orchestration string) *aaif.Definition {
	t.Helper()
	doc, err := aaif.Parse(fmt.Appendf(nil, `{"sc_standard":"SC-006","agent":{"name":"Boss","goal":"g","orchestration":%s}}`, orchestration), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	return doc.Definition()
}

func TestWhatIsPassedHasNoSystemPromptAndNoCallWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	calls := func(ids ...string) (out []model.ToolCall) {
		for _, id := range ids {
			out = append(out, model.ToolCall{ID: id, Name: "look", Arguments: json.RawMessage(`{}`)})
		}
		return out
	}
	turn := model.Assistant("both", calls("1", "2")...)
	turn.Provider = json.RawMessage(`{"signature":"x"}`)
	got := orchestrate.Passed([]model.Message{
		model.System("secret"), model.User("hi"), turn, model.ToolResult(calls("1")[0], json.RawMessage(`1`)), model.Assistant("", calls("3")...), model.System("more"),
	})
	var out []string
	for _, m := range got {
		line := string(m.Role) + ":" + m.Content
		for _, c := range m.ToolCalls {
			line += "+" + c.ID
		}
		if m.Provider != nil {
			line += " with what only its provider reads"
		}
		out = append(out, line)
	}
	if text := strings.Join(out, " "); text != "user:hi assistant:both+1 tool:1" {
		t.Error(text)
	}

	// Some providers number the calls of each turn anew.
	got = orchestrate.Passed([]model.Message{
		model.User("hi"), model.Assistant("", calls("call_1")...), model.ToolResult(calls("call_1")[0], json.RawMessage(`1`)), model.Assistant("", calls("call_1")...),
	})
	if len(got) != 3 || got[2].Role != model.RoleTool {
		t.Errorf("passed on: %+v", got)
	}
}

// A team's conditions see what its members and its own model have used so far, on both lanes.
func TestConditionsSeeTheUsageOfTheTeam(t *testing.T) {
	t.Parallel()
	const sum = "state.input_tokens == 1007.0 && state.output_tokens == 3.0 && state.cost_usd == 0.5"
	members := `"subagents":[{"ref":"agent.one","alias":"one"},{"ref":"agent.two","alias":"two","when":{"lang":"cel","expr":"` + sum + `"}}],
		"handoff":[{"condition":{"lang":"cel","expr":"output.v == 2.0 && ` + sum + `"},"target_agent":"agent.expert"}]`
	for _, durable := range []bool{false, true} {
		r := newRig(t)
		r.serve(durable, says(`{"v":1,"usage":{"input_tokens":7,"output_tokens":3,"cost_usd":0.5}}`), "agent.one")
		r.serve(durable, says(`{"v":2}`), "agent.two")
		r.serve(durable, says(`{"v":"delegated"}`), "agent.expert")
		block := `{"pipeline":["one","two"],` + members + `}`
		r.serve(durable, teamWith(plan(t, block, ""), &agentModel{}, orchestrate.Options{Handoffs: orchestrate.NewHandoffs(definitionOf(t, block), orchestrate.HandoffOptions{})}), boss)
		var got answer
		if durable {
			got = r.result(r.submit(`{"text":"go"}`, ""))
		} else {
			got = r.ask(`{"text":"go"}`, "")
		}
		if got.err != nil || got.payload != `{"v":"delegated"}` {
			t.Errorf("durable %v: %s, %v", durable, got.payload, got.err)
		}
	}
}

// A sender's payload is not taken for what the runtime knows, also where it knows nothing yet.
func TestASenderSuppliesNoFacts(t *testing.T) {
	t.Parallel()
	const payload = `{"text":"go","confidence":0.1,"output":{"v":2},"outputs":{"one":{"v":2}},"variables":{"v":2}}`
	for expr, want := range map[string]string{
		"confidence < 0.5":                      `{"v":1}`,
		"state.confidence < 0.5":                `{"v":1}`,
		"output.v == 2.0":                       `{"v":1}`,
		"outputs.one.v == 2.0":                  `{"v":1}`,
		"variables.v == 2.0":                    `{"v":1}`,
		"input.confidence < 0.5":                `{"by":"first"}`,
		"input.output.v == 2.0 && text == 'go'": `{"by":"first"}`,
	} {
		for _, durable := range []bool{false, true} {
			r := newRig(t)
			r.serve(durable, says(`{"by":"first"}`), "agent.first")
			r.serve(durable, says(`{"v":1}`), "agent.one")
			block := `{"role":"router","subagents":[{"ref":"agent.first","alias":"first","when":{"lang":"cel","expr":"` + expr + `"}},{"ref":"agent.one","alias":"one","role":"fallback"}]}`
			r.serve(durable, team(plan(t, block, ""), nil), boss)
			var got answer
			if durable {
				got = r.result(r.submit(payload, ""))
			} else {
				got = r.ask(payload, "")
			}
			if got.err != nil || got.payload != want {
				t.Errorf("%s, durable %v: %s, %v", expr, durable, got.payload, got.err)
			}
		}
	}
}

// In a team, the confidence is that of the last output.
func TestATeamSeesItsMembersConfidence(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{`{"confidence":0.3}`: `{"v":2}`, `{"confidence":0.9}`: `{"confidence":0.9}`, `{"confidence":30}`: `{"confidence":30}`} {
		r := newRig(t)
		r.serve(false, says(said), "agent.one")
		r.serve(false, says(`{"v":2}`), "agent.two")
		block := `{"pipeline":["one","two"],"subagents":[{"ref":"agent.one","alias":"one"},{"ref":"agent.two","alias":"two","when":{"lang":"cel","expr":"confidence < 0.5 && state.confidence < 0.5"}}]}`
		r.serve(false, team(plan(t, block, ""), nil), boss)
		if got := r.ask(`{"text":"go","confidence":0.1}`, ""); got.err != nil || got.payload != want {
			t.Errorf("%s: %s, %v", said, got.payload, got.err)
		}
	}
}

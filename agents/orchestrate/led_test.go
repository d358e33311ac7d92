package orchestrate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// Results of calls are found by their keys, although a provider's ids repeat, some calls
// have failed or are open, and the conversation began on another platform.
func TestResultsOfCallsAreFoundByTheirKeys(t *testing.T) {
	t.Parallel()
	c := state.New("agent.x", "01J00000000000000000000000", "")
	tell := func(m model.Message) { c.Append(m, time.Time{}, 0) }
	line := func(id, key string, status state.EffectStatus) {
		c.Mesh.Effects = append(c.Mesh.Effects, state.Effect{ID: id, Key: key, Status: status})
	}
	one, two := model.ToolCall{ID: "1", Name: "research"}, model.ToolCall{ID: "2", Name: "writer"}
	tell(model.User("go"))
	tell(model.ToolResult(one, json.RawMessage(`"another platform's"`)))
	// A turn in which both calls have ended, one with an error.
	tell(model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{one, two}})
	tell(model.ToolResult(one, json.RawMessage(`"first"`)))
	tell(model.ToolFailure(two, "it failed"))
	line("1", "run.1.1", state.EffectDone)
	line("2", "run.1.2", state.EffectFailed)
	// A turn of which the provider withheld the answer: its calls were not made.
	tell(model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{one}})
	// The last turn: one call is open.
	tell(model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{one, two}})
	tell(model.ToolResult(two, json.RawMessage(`"second"`)))
	line("1", "run.3.1", state.EffectInFlight)
	line("2", "run.3.2", state.EffectDone)
	if got, want := returned(c), map[string]string{"run.1.1": `"first"`, "run.3.2": `"second"`}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// No two members have one tool name, else a model could call only the first of them. A name
// depends only on the aliases before it, so it is the same after a restart.
func TestToolNamesAreUniqueInATeam(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	got := ToolNames([]string{"a b", "a.b", "c", "a_b", "a_b_2", long, long + "y", long + "z", "ä", "ö", "1", "agent_1"})
	want := []string{"a_b", "a_b_2", "c", "a_b_3", "a_b_2_2", long, long[:62] + "_2", long[:62] + "_3", "_", "__2", "agent_1", "agent_1_2"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The model that leads a team has a tool for each member.
func TestEachMemberIsATool(t *testing.T) {
	t.Parallel()
	team := New(&Plan{Pattern: ModelLed, Members: []Participant{{Alias: "go expert", Ref: "agent.a"}, {Alias: "judge", Ref: "agent.j", Role: aaif.SubagentEvaluator}, {Alias: "go.expert", Ref: "agent.b"}}, Referee: -1, Synthesizer: -1}, Options{})
	tools, err := team.Tools().Tools(t.Context())
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Definition().Name)
	}
	if want := []string{"go_expert", "go_expert_2"}; err != nil || !slices.Equal(names, want) || tools[1].(called).member != 2 {
		t.Errorf("%q, %v; want %q", names, err, want)
	}
}

// A live task holds one output of each member, however often its model calls them; a
// call that is repeated has one outcome.
func TestALiveTaskHoldsTheLatestOutputOfEachMember(t *testing.T) {
	t.Parallel()
	w := &work{}
	for _, o := range []Outcome{
		{Alias: "research", Call: "1", TaskID: "a", Output: json.RawMessage(`1`)}, {Alias: "writer", Call: "2", TaskID: "b", Output: json.RawMessage(`2`)},
		{Alias: "research", Call: "3", TaskID: "c", Output: json.RawMessage(`3`)}, {Alias: "research", Call: "4", Err: envelope.Errorf(envelope.CodeTool, "no")},
		{Alias: "writer", Call: "2", TaskID: "b", Output: json.RawMessage(`2`)},
	} {
		w.note(o)
	}
	var held []string
	for _, o := range w.pos.Outcomes {
		held = append(held, o.Call+string(o.Output))
	}
	if want := []string{"1", "33", "4", "22"}; !slices.Equal(held, want) || !slices.Equal(w.answered(), []string{"a", "c", "b"}) {
		t.Errorf("held %q, want %q; answered %q", held, want, w.answered())
	}
}

package orchestrate_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/agents/orchestrate"
)

// The agent's model chooses the member of a router only if there is one to choose and no subagent
// has a condition.
func TestWhetherTheModelChoosesInARouter(t *testing.T) {
	t.Parallel()
	const a, b, when, fallback = `{"ref":"agent.a","alias":"a"}`, `{"ref":"agent.b","alias":"b"}`, `,"when":{"lang":"never"}`, `,"role":"fallback"`
	member := func(alias, more string) string {
		return `{"ref":"agent.` + alias + `","alias":"` + alias + `"` + more + `}`
	}
	for _, tt := range []struct {
		subagents string
		want      string
		asked     int
	}{
		{a + "," + b, `{"n":0}`, 1},
		{a + "," + member("c", fallback), `{"n":0}`, 1},
		{member("c", fallback), `{"n":2}`, 0},
		{member("j", `,"role":"evaluator"`) + "," + member("c", fallback), `{"n":2}`, 0},
		{member("synthesizer", "") + "," + member("c", fallback), `{"n":2}`, 0},
		{member("b", when) + "," + a, `{"n":0}`, 0},
		{b + "," + member("c", fallback+when), `{"n":1}`, 0},
	} {
		p, err := orchestrate.Compile(definition(t, `{"role":"router","subagents":[`+tt.subagents+`]}`, ""), true)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t)
		r.serve(false, newTally(), "agent.a", "agent.b", "agent.c")
		m := &agentModel{answer: `{"agent":"a"}`}
		if tt.asked == 0 {
			m.answer = ""
		}
		r.serve(false, team(p, m), boss)
		if got := r.ask(`{"text":"go"}`, ""); got.payload != tt.want || len(m.asked) != tt.asked || p.NeedsMind() != (tt.asked > 0) {
			t.Errorf("%s: %s, %v, the model was asked %d times, and is needed: %v", tt.subagents, got.payload, got.err, len(m.asked), p.NeedsMind())
		}
	}
}

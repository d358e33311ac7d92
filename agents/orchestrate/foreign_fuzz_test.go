package orchestrate

import (
	"encoding/json"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Any position of another platform is adopted or refused: every outcome has a slot of its own, and
// an output that can be sent to the next member.
func FuzzForeignPosition(f *testing.F) {
	const subagents = `"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"},{"ref":"5b0a8c2e-1111-4111-8111-111111111111","alias":"c"}]`
	var plans []*Plan
	for _, block := range []string{
		`{"pipeline":["a","b","a"],` + subagents + `}`, `{"role":"router",` + subagents + `}`, `{"parallel_execution":true,` + subagents + `}`,
	} {
		doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","agent":{"name":"Boss","goal":"g","orchestration":`+block+`}}`), aaif.Options{Kind: aaif.KindAgent})
		if err != nil {
			f.Fatal(err)
		}
		plan, err := Compile(doc.Definition(), false)
		if err != nil {
			f.Fatal(err)
		}
		plans = append(plans, plan)
	}
	for _, text := range []string{
		`{"pipeline_position":{"current_step":"b","completed_steps":["a"],"remaining_steps":["a"]},"subagent_states":[{"alias":"a","agent_id":"x","status":"completed","output":{"n":1}}]}`,
		`{"pipeline_position":{"current_subagent":"b"},"subagent_states":[{"alias":"b","agent_id":"x","output":" \"text\""}]}`,
		`{"subagent_states":[{"alias":"a","agent_id":"x","output":[1]},{"alias":"b","agent_id":"y","status":"failed"},{"alias":"a","agent_id":"x","status":"running","state_id":"z"}]}`,
		`{"subagent_states":[{"alias":"c","agent_id":"5b0a8c2e-1111-4111-8111-111111111111","status":"completed","output":null}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var doc aaif.State
		if jsonv2.Unmarshal(text, &doc) != nil {
			return
		}
		for _, plan := range plans {
			w := &work{Team: New(plan, Options{})}
			if w.adopt(&doc) != nil {
				continue
			}
			slots := map[int]bool{}
			for i := range w.pos.Outcomes {
				o := &w.pos.Outcomes[i]
				if slots[o.Slot] || !o.OK() || !json.Valid(o.Output) {
					t.Errorf("%s: outcome %+v, output %s", plan.Pattern, *o, o.Output)
				}
				slots[o.Slot] = true
				if plan.Pattern == Pipeline && o.Slot != i {
					t.Errorf("outcome %d is of step %d", i, o.Slot)
				}
			}
			if plan.Pattern == Pipeline && len(w.pos.Outcomes) > len(plan.Steps) {
				t.Errorf("%d outcomes", len(w.pos.Outcomes))
			}
		}
	})
}

package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// skilled is a directory that resolves a skill to another agent each time.
type skilled struct {
	mu sync.Mutex
	n  int
}

func (d *skilled) Find(_ context.Context, ref string) (orchestrate.Member, error) {
	if ref != "skill:law" {
		return orchestrate.Member{Entity: ref}, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	return orchestrate.Member{Entity: []string{"agent.a", "agent.b"}[d.n%2]}, nil
}

// The worker of a team is cut off at each point of the commit order, in turn. Another one
// ends the run with the same result, and no member on the durable lane does its part twice:
// neither one that was chosen by its skill, nor one that has failed, nor its replacement.
func TestATeamSurvivesAtEachPoint(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	const members = `"subagents":[{"ref":"skill:law","alias":"x","when":{"lang":"jmespath","expr":"go"}},{"ref":"agent.f","alias":"f","when":{"lang":"always"}},
		{"ref":"agent.s","alias":"s","role":"evaluator"},{"ref":"agent.c","alias":"c","role":"fallback"}]`
	steps := extras(`"steps":{"f":{"on_error":"fallback","max_retries":1},"x":{"input":{"lang":"jmespath","expr":"{go: input.go, from: 'x'}"}}}`)
	for name, c := range map[string]struct {
		block, payload string
		parts          map[string]int // all lawyers count as one
	}{
		"pipeline":    {`"pipeline":["x","f","s"],` + members, `{"go":true}`, map[string]int{"law": 1, "agent.f": 2, "agent.c": 1, "agent.s": 1}},
		"router":      {`"role":"router",` + members, `{"go":true}`, map[string]int{"law": 1}},
		"to fallback": {`"role":"router",` + members, `{"go":false}`, map[string]int{"agent.f": 2, "agent.c": 1}},
		"swarm":       {`"parallel_execution":true,` + members, `{"go":true}`, map[string]int{"law": 1, "agent.f": 2, "agent.c": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan(t, `{`+c.block+`}`, steps)
			r := newRig(t).shortLeases()
			var mu sync.Mutex
			done := map[string]map[string]int{}
			r.serve(true, mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
				who := task.Envelope.To
				if who == "agent.a" || who == "agent.b" {
					who = "law"
				}
				mu.Lock()
				defer mu.Unlock()
				if done[task.Envelope.Corr] == nil {
					done[task.Envelope.Corr] = map[string]int{}
				}
				done[task.Envelope.Corr][who]++
				if who == "agent.f" {
					return nil, envelope.Errorf(envelope.CodeUnavailable, "it fails").WithBackoff(1)
				}
				return fmt.Appendf(nil, `{"by":%q}`, who), nil
			}), "agent.a", "agent.b", "agent.c", "agent.f", "agent.s")
			handler := func(n int) mesh.HandlerFunc { return teamWith(p, nil, orchestrate.Options{Directory: &skilled{n: n}}) }
			survived := firstSurvivor(8, 1, 60, func(n int) bool {
				cut := cutOff(t, r, n, c.payload, handler(0), handler(1))
				mu.Lock()
				defer mu.Unlock()
				if parts := done[cut.task.Corr]; !maps.Equal(parts, c.parts) || cut.got.err != nil {
					t.Errorf("cut off at %d, %s: asked %v, want %v: %s %v", n, cut.at, parts, c.parts, cut.got.payload, cut.got.err)
				}
				return cut.survived
			})
			if survived < 4 {
				t.Errorf("the first that was not cut off was %d", survived)
			}
		})
	}
}

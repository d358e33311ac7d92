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
	"github.com/aeemesh/aeemesh/state"
)

// skilled is a directory in which a skill means another agent each time that it is asked for.
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
		parts          map[string]int // lawyers are one
	}{
		"pipeline":    {`"pipeline":["x","f","s"],` + members, `{"go":true}`, map[string]int{"law": 1, "agent.f": 2, "agent.c": 1, "agent.s": 1}},
		"router":      {`"role":"router",` + members, `{"go":true}`, map[string]int{"law": 1}},
		"to fallback": {`"role":"router",` + members, `{"go":false}`, map[string]int{"agent.f": 2, "agent.c": 1}},
		"swarm":       {`"parallel_execution":true,` + members, `{"go":true}`, map[string]int{"law": 1, "agent.f": 2, "agent.c": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan(t, `{`+c.block+`}`, steps)
			r := newRig(t)
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
			over := make(chan struct{})
			defer close(over)
			handler := func(n int) mesh.HandlerFunc { return teamWith(p, nil, orchestrate.Options{Directory: &skilled{n: n}}) }
			survives := func(n int) (survived bool) {
				entity := fmt.Sprintf("agent.boss%d", n)
				task := taskFor(entity, c.payload, "")
				dead, at := make(chan struct{}), mesh.Point("")
				var once sync.Mutex
				seen := 0
				r.serveAs(true, handler(0), []string{entity}, func(s *serving, d *mesh.Durable) {
					d.Observe = func(point mesh.Point, _ state.ID) {
						once.Lock()
						seen++
						gone := seen >= n
						if seen == n {
							at = point
							s.kill()
							close(dead)
						}
						once.Unlock()
						if gone {
							<-over
						}
					}
				})
				r.submitted(task)
				result := make(chan answer, 1)
				go func() { result <- r.result(task) }()
				select {
				case <-dead:
					r.serve(true, handler(1), entity)
				case got := <-result:
					survived = true
					result <- got
				}
				got := within(t, "the result", result)
				mu.Lock()
				defer mu.Unlock()
				if parts := done[task.Corr]; !maps.Equal(parts, c.parts) || got.err != nil {
					t.Errorf("cut off at %d, %s: asked %v, want %v: %s %v", n, at, parts, c.parts, got.payload, got.err)
				}
				return survived
			}
			survived := 0
			for first := 1; survived == 0 && first < 60; first += 8 {
				results := make([]bool, 8)
				var wg sync.WaitGroup
				for i := range results {
					wg.Go(func() { results[i] = survives(first + i) })
				}
				wg.Wait()
				for i, ok := range results {
					if ok && survived == 0 {
						survived = first + i
					}
				}
			}
			if survived < 4 {
				t.Errorf("the first that was not cut off was %d", survived)
			}
		})
	}
}

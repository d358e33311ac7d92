package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// A member's error may say that nothing was done. The team's task has begun, so the team's error does
// not say so, also if another worker reads it from the run's record.
func TestATeamNeverSaysThatNothingWasDone(t *testing.T) {
	t.Parallel()
	const members = `"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.f","alias":"f"}]`
	for name, block := range map[string]string{"pipeline": `"pipeline":["a","f"],` + members, "router": `"role":"router","subagents":[{"ref":"agent.f","alias":"f"}]`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan(t, `{`+block+`}`, "")
			r := newRig(t).shortLeases()
			r.serve(true, says(`{"n":1}`), "agent.a")
			r.serve(true, says("!E_RATE_LIMITED"), "agent.f")
			survived := firstSurvivor(4, 1, 40, func(n int) bool {
				cut := cutOff(t, r, n, `{"text":"go"}`, team(p, nil), team(p, nil))
				if cut.got.err == nil || cut.got.err.Code != envelope.CodeUnavailable || cut.got.err.Message != "step f: it failed" {
					t.Errorf("cut off at %d, %s: got %v", n, cut.at, cut.got.err)
				}
				return cut.survived
			})
			if survived < 4 {
				t.Errorf("the first that was not cut off was %d", survived)
			}
		})
	}
}

// defining is a directory of one agent, of which it knows the definition.
type defining struct {
	orchestrate.Member
	refs []string // by which it knows the agent
}

func (d defining) Find(_ context.Context, ref string) (orchestrate.Member, error) {
	if !slices.Contains(d.refs, ref) {
		return orchestrate.Member{}, orchestrate.ErrUnanswered
	}
	return d.Member, nil
}

// A live member is retried as its own definition says, also by the worker that resumes the run.
func TestAResumedTeamRetriesAMemberAsItsDefinitionSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		retries int
		refs    []string // by which the second worker knows the member
	}{
		"never":                    {0, []string{"file:a.yaml", "agent.a"}},
		"more often than usual":    {4, []string{"file:a.yaml", "agent.a"}},
		"known by its entity only": {4, []string{"agent.a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t).shortLeases()
			def := definitionOf(t, fmt.Sprintf(`{"role":"worker"},"runtime":{"max_retries":%d}`, c.retries))
			var calls atomic.Int32
			r.serve(false, mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
				if calls.Add(1) == 1 { // until its caller dies
					<-ctx.Done()
				}
				return nil, envelope.Errorf(envelope.CodeUnavailable, "it fails").WithBackoff(1)
			}), "agent.a")
			p := plan(t, `{"subagents":[{"ref":"file:a.yaml","alias":"a"}],"pipeline":["a"]}`, "")
			by := func(refs []string) mesh.HandlerFunc {
				dir := defining{orchestrate.Member{Entity: "agent.a", Def: def}, refs}
				return teamWith(p, nil, orchestrate.Options{Directory: dir, Retries: mesh.RetryPolicy{Max: orchestrate.DefaultRetries, Base: time.Millisecond}})
			}
			first := r.serve(true, by([]string{"file:a.yaml"}), boss)
			task := r.submit(`{"text":"go"}`, "")
			until(t, "the member works", func() bool { return calls.Load() == 1 })
			first.kill()
			r.serve(true, by(c.refs), boss)
			if got := r.result(task); got.err == nil || got.err.Code != envelope.CodeUnavailable {
				t.Errorf("%s, %v", got.payload, got.err)
			}
			if n, want := int(calls.Load()), 1+1+c.retries; n != want {
				t.Errorf("the member was called %d times, want %d", n, want)
			}
		})
	}
}

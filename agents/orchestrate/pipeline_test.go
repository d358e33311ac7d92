package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A retry of a run continues at the failed step. A step that failed and was skipped stays skipped:
// it is not executed again after later ones.
func TestATriedPipelineKeepsTheStepsThatWereSkipped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var mu sync.Mutex
	var order []string
	r.serve(true, mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		mu.Lock()
		defer mu.Unlock()
		who := task.Envelope.To
		order = append(order, who)
		if n := len(order); who == "agent.a" || who == "agent.c" && n == 3 {
			return nil, envelope.Errorf(envelope.CodeUnavailable, "try %d", n).WithBackoff(1)
		}
		return task.Input(), nil
	}), "agent.a", "agent.b", "agent.c")
	r.retries = 1
	r.serve(true, team(plan(t, `{"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"},{"ref":"agent.c","alias":"c"}],"pipeline":["a","b","c"]}`,
		extras(`"steps":{"a":{"on_error":"skip"}}`)), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	got := r.result(task)
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"agent.a", "agent.b", "agent.c", "agent.c"}; got.err != nil || !slices.Equal(order, want) {
		t.Errorf("%v: worked %v, want %v", got.err, order, want)
	}
	p := r.checkpoint(task).Doc.PipelinePosition
	if p == nil || !slices.Equal(p.CompletedSteps, []string{"a", "b", "c"}) {
		t.Errorf("pipeline_position %+v", p)
	}
}

// The team's worker is killed after a member has failed, while another member does the part or the
// step is retried. The next worker continues there, and does not repeat the failed call.
func TestATeamGoesOnAfterTheCallThatHasFailed(t *testing.T) {
	t.Parallel()
	const fallback = `"steps":{"a":{"on_error":"fallback"}}`
	for name, c := range map[string]struct {
		block, steps string
		worked       map[string]int
	}{
		"a step's fallback":   {`"pipeline":["a"]`, fallback, map[string]int{"agent.a": 1, "agent.b": 1}},
		"a member's fallback": {`"parallel_execution":true`, fallback, map[string]int{"agent.a": 1, "agent.b": 1}},
		"a router's fallback": {`"role":"router"`, fallback, map[string]int{"agent.a": 1, "agent.b": 1}},
		"a second try":        {`"pipeline":["c"]`, `"steps":{"c":{"max_retries":1}}`, map[string]int{"agent.c": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t).shortLeases()
			work := newTally("agent.b")
			second := make(chan struct{})
			r.serve(false, mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				_, _ = work.Handle(ctx, task)
				return nil, envelope.Errorf(envelope.CodeTool, "it fails")
			}), "agent.a")
			r.serve(true, mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				out, err := work.Handle(ctx, task)
				if work.all()["agent.c"] == 1 {
					return nil, envelope.Errorf(envelope.CodeUnavailable, "the first try fails").WithBackoff(1)
				}
				if task.Envelope.To == "agent.c" {
					<-second
				}
				return out, err
			}), "agent.b", "agent.c")
			p := plan(t, `{"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b","role":"fallback"},{"ref":"agent.c","alias":"c","when":{"lang":"jmespath","expr":"c"}}],`+c.block+`}`, extras(c.steps))
			first := r.serve(true, team(p, nil), boss)
			task := r.submit(`{"text":"go","c":`+fmt.Sprint(name == "a second try")+`}`, "")
			until(t, "the other member, or the second try, works", func() bool { return maps.Equal(work.all(), c.worked) })
			first.kill()
			r.serve(true, team(p, nil), boss)
			until(t, "the second worker has claimed the run", func() bool {
				cp, err := r.client.Run(t.Context(), task.To, task.ID)
				return err == nil && cp.Mesh.Epoch > 1
			})
			work.open("agent.b")
			close(second)
			if got := r.result(task); got.err != nil || !maps.Equal(work.all(), c.worked) {
				t.Errorf("asked %v, want %v: %+v", work.all(), c.worked, got)
			}
			var left struct{ Failed []json.RawMessage }
			if err := json.Unmarshal(r.checkpoint(task).Mesh.Plan, &left); err != nil || len(left.Failed) > 0 {
				t.Errorf("%v: the position has calls that are over: %s", err, left.Failed)
			}
		})
	}
}

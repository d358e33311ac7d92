package orchestrate_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A run that is tried again goes on at the step that has failed. A step that failed and was
// skipped is over: it does not work again after the later ones.
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

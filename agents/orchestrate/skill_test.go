package orchestrate_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/mesh"
)

// inTurn is a directory in which a skill means one agent after the other.
type inTurn struct {
	entities []string
	asked    atomic.Int64
}

func (d *inTurn) Find(_ context.Context, _ string) (orchestrate.Member, error) {
	n := int(d.asked.Add(1)) - 1
	return orchestrate.Member{Entity: d.entities[min(n, len(d.entities)-1)]}, nil
}

// A live step that names a skill goes to another agent that has it, where the
// first one cannot do it now.
func TestASkillIsTriedElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(false, says("!E_UNAVAILABLE"), "agent.sick")
	r.serve(false, says(`{"text":"done"}`), "agent.well")
	dir := &inTurn{entities: []string{"agent.sick", "agent.well"}}
	team := orchestrate.New(plan(t, `{"role":"orchestrator","subagents":[{"ref":"skill:law","alias":"a"}],"pipeline":["a","a"]}`, ""), orchestrate.Options{Directory: dir})
	r.serve(false, mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		res, err := team.Handle(ctx, task, nil)
		return res.Payload, err
	}), boss)
	if a := r.ask(`{"text":"x"}`, ""); a.err != nil || a.payload != `{"text":"done"}` {
		t.Fatalf("%+v", a)
	}
	if n := dir.asked.Load(); n != 3 { // twice for the first step, once for the second
		t.Errorf("asked %d times", n)
	}
}

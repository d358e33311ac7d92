package orchestrate_test

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// The worker of a swarm is cut off for good at each point of the commit order, in turn. Another one
// ends its run with the same result, and no member, evaluator or synthesizer on the durable lane
// does its part twice.
func TestASwarmSurvivesAtEachPoint(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	p := plan(t, three(`,{"ref":"agent.j","alias":"j","role":"evaluator"},{"ref":"agent.s","alias":"synthesizer"}],"consensus":{"strategy":"best_of_n"}`), "")
	r := newRig(t).shortLeases()
	var mu sync.Mutex
	done := map[string]map[string]int{} // by corr, by entity
	counted := func(h mesh.Handler) mesh.HandlerFunc {
		return func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			mu.Lock()
			defer mu.Unlock()
			if done[task.Envelope.Corr] == nil {
				done[task.Envelope.Corr] = map[string]int{}
			}
			done[task.Envelope.Corr][task.Envelope.To]++
			return h.Handle(ctx, task)
		}
	}
	r.serve(true, counted(newTally()), "agent.a", "agent.b", "agent.c", "agent.s")
	r.serve(true, counted(judge("score")), "agent.j")

	step := 1
	if testing.Short() || natstest.Raced {
		step = 7
	}
	// The number of points varies a little: a slower machine has more.
	const atOnce, least, most = 24, 8, 120
	survived := firstSurvivor(atOnce, step, most, func(n int) bool {
		cut := cutOff(t, r, n, `{"text":"go"}`, team(p, nil), team(p, nil))
		if got := cut.got; got.payload != `{"n":18}` || got.swarm.Winner != "c" || got.swarm.MergedBy != "synthesizer" {
			t.Errorf("cut off at %d, %s: %+v", n, cut.at, got)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := map[string]int{"agent.a": 1, "agent.b": 1, "agent.c": 1, "agent.j": 3, "agent.s": 1}; !maps.Equal(done[cut.task.Corr], want) {
			t.Errorf("cut off at %d, %s: asked %v, want %v", n, cut.at, done[cut.task.Corr], want)
		}
		return cut.survived
	})
	if survived <= least {
		t.Errorf("the first that was not cut off was %d (0: none below %d): the points were too few, or too many", survived, most)
	}
}

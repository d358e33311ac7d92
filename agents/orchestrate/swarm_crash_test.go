package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// The worker of a swarm is cut off at each point of the commit order, in turn,
// and never heard of again. Another one ends its run with the same result, and
// no member, evaluator or synthesizer on the durable lane does its part twice.
func TestASwarmSurvivesAtEachPoint(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	p := plan(t, three(`,{"ref":"agent.j","alias":"j","role":"evaluator"},{"ref":"agent.s","alias":"synthesizer"}],"consensus":{"strategy":"best_of_n"}`), "")
	r := newRig(t)
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

	over := make(chan struct{})
	defer close(over)
	survives := func(n int) (survived bool) {
		entity := fmt.Sprintf("agent.boss%d", n)
		task := taskFor(entity, `{"text":"go"}`, "")
		dead, at := make(chan struct{}), mesh.Point("")
		var once sync.Mutex
		seen := 0
		r.serveAs(true, team(p, nil), []string{entity}, func(s *serving, d *mesh.Durable) {
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
			r.serve(true, team(p, nil), entity)
		case got := <-result:
			survived = true
			result <- got
		}
		got := within(t, "the result", result)
		if got.payload != `{"n":18}` || got.swarm.Winner != "c" || got.swarm.MergedBy != "synthesizer" {
			t.Errorf("cut off at %d, %s: %+v", n, at, got)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := map[string]int{"agent.a": 1, "agent.b": 1, "agent.c": 1, "agent.j": 3, "agent.s": 1}; !maps.Equal(done[task.Corr], want) {
			t.Errorf("cut off at %d, %s: asked %v, want %v", n, at, done[task.Corr], want)
		}
		return survived
	}
	step := 1
	if testing.Short() || natstest.Raced {
		step = 7
	}
	// How many points there are differs a little: the slower the machine, the more.
	const atOnce, least, most = 24, 8, 120
	survived := 0
	for first := 1; survived == 0 && first < most; first += atOnce {
		results := make([]bool, atOnce)
		var wg sync.WaitGroup
		for i := 0; i < atOnce; i += step {
			wg.Go(func() { results[i] = survives(first + i) })
		}
		wg.Wait()
		if i := slices.Index(results, true); i >= 0 {
			survived = first + i
		}
	}
	if survived <= least {
		t.Errorf("the first that was not cut off was %d (0: none below %d): the points were too few, or too many", survived, most)
	}
}

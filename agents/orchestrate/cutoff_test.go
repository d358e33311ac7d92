package orchestrate_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// cut is the outcome of a task whose worker was cut off.
type cut struct {
	task     *envelope.Envelope
	at       mesh.Point // where the worker was cut off
	got      answer
	survived bool // the task had ended before
}

// cutOff lets a worker do a task with first, and cuts it off at the nth point of the commit order
// until the end of the test. Another worker continues the run with next.
func cutOff(t *testing.T, r *rig, n int, payload string, first, next mesh.HandlerFunc) (c cut) {
	t.Helper()
	entity := fmt.Sprintf("agent.boss%d", n)
	c.task = taskFor(entity, payload, "")
	dead, over := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex // guards what follows
	seen, at := 0, mesh.Point("")
	r.serveAs(true, first, []string{entity}, func(s *serving, d *mesh.Durable) {
		d.Observe = func(point mesh.Point, _ state.ID) {
			mu.Lock()
			seen++
			gone := seen >= n
			if seen == n {
				at = point
				s.kill()
				close(dead)
			}
			mu.Unlock()
			if gone {
				<-over
			}
		}
	})
	t.Cleanup(func() { close(over) }) // before the worker is closed, which waits for it
	r.submitted(c.task)
	result := make(chan answer, 1)
	go func() { result <- r.result(c.task) }()
	select {
	case <-dead:
		r.serve(true, next, entity)
	case got := <-result:
		c.survived = true
		result <- got
	}
	c.got = within(t, "the result", result)
	mu.Lock()
	defer mu.Unlock()
	c.at = at
	return c
}

// firstSurvivor tries every step-th point from 1 on, several at the same time. It returns the first
// point that a worker survives, because its task ends before it; 0 if there is none below most.
func firstSurvivor(atOnce, step, most int, survives func(n int) bool) int {
	for first := 1; first < most; first += atOnce {
		results := make([]bool, atOnce)
		var wg sync.WaitGroup
		for i := 0; i < atOnce; i += step {
			wg.Go(func() { results[i] = survives(first + i) })
		}
		wg.Wait()
		if i := slices.Index(results, true); i >= 0 {
			return first + i
		}
	}
	return 0
}

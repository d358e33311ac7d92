package sched

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A crew runs functions in their order, on as many goroutines as it may have; it refuses
// what it has no room for, and its goroutines end when there is nothing to do.
func TestACrewHasGoroutinesWhileItNeedsThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCrew(1, 2)
		var done []int
		for i, want := range []bool{true, true, true, false} { // one runs, two wait
			ok := c.Go(func() {
				time.Sleep(time.Millisecond)
				done = append(done, i)
			})
			if ok != want {
				t.Errorf("function %d was taken: %v, want %v", i, ok, want)
			}
		}
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if !slices.Equal(done, []int{0, 1, 2}) {
			t.Errorf("done: %v", done)
		}
		if n := goroutines(c); n != 1 {
			t.Errorf("%d goroutines linger, want 1", n)
		}
		time.Sleep(2 * crewLinger)
		synctest.Wait()
		if n := goroutines(c); n != 0 {
			t.Errorf("%d goroutines without anything to do", n)
		}
		c.Go(func() { done = append(done, 4) })
		c.Close()
		if !slices.Equal(done, []int{0, 1, 2, 4}) || goroutines(c) != 0 {
			t.Errorf("done: %v; %d goroutines are left", done, goroutines(c))
		}
		if c.Go(func() {}) {
			t.Error("a closed crew takes a function")
		}
	})
}

// A function that ends its goroutine takes no other with it.
func TestACrewRunsWhatWaitsForAGoroutineThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCrew(1, 3)
		ran := 0
		for range 3 {
			c.Go(func() {
				ran++
				runtime.Goexit()
			})
		}
		c.Close()
		if ran != 3 || goroutines(c) != 0 {
			t.Errorf("%d functions ran, %d goroutines are left", ran, goroutines(c))
		}
	})
}

func TestACrewRunsSeveralAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCrew(3, 10)
		var began atomic.Int64
		gate := make(chan struct{})
		for range 5 {
			c.Go(func() {
				began.Add(1)
				<-gate
			})
		}
		synctest.Wait()
		if began.Load() != 3 {
			t.Errorf("%d run at once, want 3", began.Load())
		}
		close(gate)
		c.Close()
		if began.Load() != 5 {
			t.Errorf("%d have run, want 5", began.Load())
		}
	})
}

func goroutines(c *Crew) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

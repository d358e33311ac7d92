package mesh

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// The bubble of synctest does not end while a goroutine of the group is left.

func TestAGroupWaitsForAllThatIsBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		for range 2 { // it may be used again
			var ran atomic.Int64
			for range 200 {
				g.Go(func() {
					runtime.Gosched()
					g.Go(func() { ran.Add(1) })
					ran.Add(1)
				})
			}
			g.Wait()
			if n := ran.Load(); n != 400 {
				t.Errorf("%d of 400 had run", n)
			}
		}
	})
}

func TestAGroupUsesItsGoroutinesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		stay := make(chan struct{})
		g.Go(func() { <-stay })
		g.Go(func() {})
		synctest.Wait()
		if len(g.waiting) != 1 {
			t.Fatalf("%d goroutines wait for a function, want 1", len(g.waiting))
		}
		var ran atomic.Bool
		g.Go(func() { ran.Store(true) })
		if len(g.waiting) != 0 {
			t.Error("a new goroutine was begun while one waited")
		}
		synctest.Wait()
		if !ran.Load() {
			t.Error("the second function did not run")
		}
		for range 3 * maxWaiting {
			g.Go(func() { <-stay })
		}
		close(stay)
		g.Wait()
	})
}

func TestAGroupSurvivesAGoroutineThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		stay := make(chan struct{})
		g.Go(func() { <-stay })
		g.Go(func() {})
		synctest.Wait()
		g.Go(runtime.Goexit) // in the one that waited
		synctest.Wait()
		close(stay)
		g.Wait()
	})
}

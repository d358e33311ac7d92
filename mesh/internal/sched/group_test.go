package sched

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// The bubble of synctest does not end while a goroutine of the group is left.

func TestAGroupWaitsForAllThatIsBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
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
		var g Group
		waiting := func() int {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.waiting)
		}
		stay := make(chan struct{})
		g.Go(func() { <-stay })
		g.Go(func() {})
		synctest.Wait()
		if n := waiting(); n != 1 {
			t.Fatalf("%d goroutines wait for a function, want 1", n)
		}
		var ran atomic.Bool
		g.Go(func() {
			ran.Store(true)
			<-stay
		})
		synctest.Wait()
		if n := waiting(); n != 0 || !ran.Load() {
			t.Errorf("%d goroutines wait still; the next function ran: %t", n, ran.Load())
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
		var g Group
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

package beats

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// However many agents a process has, it sends no more than a heartbeat each beatGap, and
// each agent has its turn once in the interval.
func TestHeartbeatsOfManyAgentsAreSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		agents   int
		interval time.Duration
	}{{1, 10 * time.Second}, {7, 10 * time.Second}, {1000, 10 * time.Second}, {10_000, 100 * time.Second}} {
		b := New(10*time.Second, func(int) {})
		for i := range c.agents {
			b.agents = append(b.agents, &agent[int]{of: i})
		}
		if got := b.Every(); got != c.interval {
			t.Errorf("%d agents: every %v, want %v", c.agents, got, c.interval)
		}
		seen, took := map[int]int{}, time.Duration(0)
		for took < c.interval {
			pause, now := b.turn()
			for _, h := range now {
				seen[h.of]++
			}
			if pause < time.Duration(len(now))*beatGap {
				t.Fatalf("%d agents: %d heartbeats in %v", c.agents, len(now), pause)
			}
			took += pause
		}
		if len(seen) != c.agents {
			t.Errorf("%d agents: %d were announced in %v", c.agents, len(seen), took)
		}
	}
}

// Each agent is announced once in an interval, until it is removed. The one goroutine ends
// with the last agent, and begins again with the next.
func TestAnAgentIsAnnouncedUntilItIsRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 10 * time.Second
		var mu sync.Mutex
		var heard []string
		b := New(interval, func(who string) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, who)
		})
		hears := func(n int) []string {
			time.Sleep(time.Duration(n) * interval)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			out := heard
			heard = nil
			slices.Sort(out)
			return out
		}
		want := func(what string, got, want []string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		removeA, removeB := b.Add("a"), b.Add("b")
		hears(1) // the pauses of the first agent alone
		want("two agents", hears(2), []string{"a", "a", "b", "b"})
		removeA()
		hears(1)
		want("one agent", hears(2), []string{"b", "b"})
		removeB()
		want("no agent", hears(3), nil)
		remove := b.Add("c")
		hears(1)
		want("another agent", hears(2), []string{"c", "c"})
		remove()
	})
}

// When an agent has been removed, no heartbeat of it is being sent.
func TestRemovingWaitsForAHeartbeat(t *testing.T) {
	t.Parallel()
	var sending atomic.Bool
	begun, goOn := make(chan struct{}), make(chan struct{})
	b := New(time.Millisecond, func(string) {
		sending.Store(true)
		begun <- struct{}{}
		<-goOn
		sending.Store(false)
	})
	remove := b.Add("a")
	<-begun
	go close(goOn)
	remove()
	if sending.Load() {
		t.Error("it was removed during its heartbeat")
	}
}

// An agent that is removed after its turn has come, and before its heartbeat is sent, is not
// announced any more.
func TestARemovedAgentIsNotAnnouncedLate(t *testing.T) {
	t.Parallel()
	b := New(time.Hour, func(string) { t.Error("a heartbeat") })
	remove := b.Add("a")
	b.mu.Lock()
	_, now := b.turn()
	b.mu.Unlock()
	remove()
	for _, h := range now {
		b.send(h)
	}
	if len(now) != 1 {
		t.Errorf("it was the turn of %d agents", len(now))
	}
}

func TestThereAreNoHeartbeatsWithoutAnInterval(t *testing.T) {
	t.Parallel()
	b := New(-time.Second, func(string) { t.Error("a heartbeat") })
	remove := b.Add("a")
	if got := b.Every(); got != 0 {
		t.Errorf("every %v", got)
	}
	remove()
}

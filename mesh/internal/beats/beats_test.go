package beats

import (
	"testing"
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

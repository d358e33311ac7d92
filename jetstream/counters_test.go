package jetstream_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/counter"
)

func TestCountersAddForAll(t *testing.T) {
	t.Parallel()
	js, m := start(t), prefix(t, "acme")
	apply(t, js, jetstream.Options{Map: m})
	var wg sync.WaitGroup
	var seen sync.Map
	var most atomic.Int64
	for range 4 {
		c := counter.New(js, m)
		wg.Go(func() {
			for range 50 {
				total, err := c.Add(testContext(t), 3, "agent.x", "rate", "a tool")
				if err != nil {
					t.Error(err)
					return
				}
				if _, twice := seen.LoadOrStore(total, true); twice {
					t.Errorf("two got the total %d", total)
				}
				for now := most.Load(); total > now && !most.CompareAndSwap(now, total); now = most.Load() {
				}
			}
		})
	}
	wg.Wait()
	if most.Load() != 600 {
		t.Errorf("total %d, want 600", most.Load())
	}
	c := counter.New(js, m)
	for _, step := range []struct {
		n    int64
		ids  []string
		want int64
	}{
		{-600, []string{"a tool"}, 0}, {-5, []string{"a tool"}, -5},
		{7, []string{"another"}, 7}, {0, []string{"another"}, 7},
		{1, []string{"ü.>*"}, 1}, {math.MaxInt32, []string{"big"}, math.MaxInt32},
		{2, []string{strings.Repeat("ä", 512)}, 2}, {3, []string{strings.Repeat("ä", 511) + "ö"}, 3}, {2, []string{strings.Repeat("ä", 512)}, 4}, // a corr of 1,024 bytes
	} {
		got, err := c.Add(testContext(t), step.n, "agent.x", "rate", step.ids...)
		if err != nil || got != step.want {
			t.Errorf("add %d to %q: %d, %v; want %d", step.n, step.ids, got, err, step.want)
		}
	}
	for _, ids := range [][]string{{""}, {"x", ""}} {
		if _, err := c.Add(testContext(t), 1, "agent.x", "rate", ids...); err == nil {
			t.Errorf("%d ids were counted", len(ids))
		}
	}
	if total, err := c.Add(testContext(t), 1, subject.TreeOwner+"agent.x", "rate", "a tool"); err != nil || total != 1 {
		t.Errorf("a tree's counter has %d, %v", total, err)
	}
	for _, owner := range []string{"", "x", "agent.*", subject.TreeOwner} {
		if _, err := c.Add(testContext(t), 1, owner, "rate", "a tool"); err == nil {
			t.Errorf("%q has a counter", owner)
		}
	}
	if _, err := c.Add(testContext(t), 1, "agent.x", "no good"); err == nil {
		t.Error("a kind with a space was counted")
	}
}

func TestCountersWithoutTheirStream(t *testing.T) {
	t.Parallel()
	c := counter.New(start(t), subject.Map{})
	if _, err := c.Add(testContext(t), 1, "agent.x", "rate", "x"); !errors.Is(err, jetstream.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

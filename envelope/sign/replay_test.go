package sign

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

func code(err error) envelope.Code {
	var e *envelope.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestReplayIsRefusedForTheWholeWindow(t *testing.T) {
	t.Parallel()
	r := NewReplay(time.Minute)
	start := time.Now()
	e := &envelope.Envelope{From: "agent.a", ID: "01JFB2R1JZKQ9V3K8W8Y9W1F2A"}
	if err := r.Check(e, start); err != nil {
		t.Fatalf("first: %v", err)
	}
	for _, after := range []time.Duration{0, time.Second, 59 * time.Second, time.Minute} {
		if err := r.Check(e, start.Add(after)); code(err) != envelope.CodeReplay {
			t.Errorf("after %v: %v, want E_REPLAY", after, err)
		}
	}
	if err := r.Check(&envelope.Envelope{From: "agent.b", ID: e.ID}, start); err != nil {
		t.Errorf("the same id from another sender: %v", err)
	}
	if err := r.Check(&envelope.Envelope{From: e.From + e.ID[:1], ID: e.ID[1:]}, start); err != nil {
		t.Errorf("another sender and another id, which together are the same text: %v", err)
	}
	if err := r.Check(e, start.Add(3*time.Minute)); err != nil {
		t.Errorf("long after the window: %v", err)
	}
}

func TestReplayMemoryIsBounded(t *testing.T) {
	t.Parallel()
	r := NewReplay(time.Hour)
	r.max = 256
	now := time.Now()
	for i := range 3 * replayShards * r.max {
		if !r.firstSeen("agent.a", fmt.Sprint(i), now) {
			t.Fatalf("id %d counts as seen", i)
		}
	}
	total := 0
	for i := range r.shards {
		total += r.shards[i].young.n + r.shards[i].old.n
	}
	if limit := 2 * replayShards * r.max; total > limit || r.Early() == 0 {
		t.Errorf("%d ids remembered, %d times early; want at most %d, and it told", total, r.Early(), limit)
	}
}

func TestOneOfManyReplaysAtOnceIsFirst(t *testing.T) {
	t.Parallel()
	r := NewReplay(time.Minute)
	now := time.Now()
	var first atomic.Int64
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for i := range 1000 {
				if r.firstSeen("agent.a", fmt.Sprint(i), now) {
					first.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if first.Load() != 1000 {
		t.Errorf("%d were first, want 1000", first.Load())
	}
}

func TestCheckTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		ts   string
		want envelope.Code
	}{
		{"2026-03-01T12:00:00Z", ""},
		{"2026-03-01T11:55:00Z", ""},
		{"2026-03-01T12:05:00.000Z", ""},
		{"2026-03-01T13:03:00+01:00", ""},
		{"2026-03-01T11:54:59.999Z", envelope.CodeStale},
		{"2026-03-01T12:05:01Z", envelope.CodeStale},
		{"yesterday at noon", envelope.CodeStale},
	} {
		if got := code(CheckTime(&envelope.Envelope{TS: c.ts}, now, 5*time.Minute)); got != c.want {
			t.Errorf("ts %q: %q, want %q", c.ts, got, c.want)
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	r := NewReplay(2 * time.Minute)
	ids := make([]string, b.N)
	for i := range ids {
		ids[i] = envelope.NewID()
	}
	now := time.Now()
	b.ReportAllocs()
	b.ResetTimer()
	for _, id := range ids {
		r.firstSeen("service.client", id, now)
	}
}

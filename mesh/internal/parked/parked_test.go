package parked

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// watching returns Runs whose checks arrive on the channel.
func watching(t *testing.T, change func(*Config)) (*Runs, chan string) {
	checked := make(chan string, 100)
	cfg := Config{
		Conn: natstest.Conn(t, natstest.Run(t, natsd.Config{})), Log: slog.New(slog.DiscardHandler),
		Check: func(run string) { checked <- run }, CheckAll: func() { checked <- "all" },
	}
	if change != nil {
		change(&cfg)
	}
	w := New(cfg)
	t.Cleanup(w.Close)
	return w, checked
}

func next(t *testing.T, checked chan string) string {
	t.Helper()
	select {
	case run := <-checked:
		return run
	case <-time.After(time.Minute):
		t.Fatal("no run was checked")
		return ""
	}
}

func TestARunIsCheckedWhenAnAnswerComesAndSomeTimesMore(t *testing.T) {
	t.Parallel()
	w, checked := watching(t, nil)
	w.Watch("r1", 7, slices.Values([]string{"reply.a", "reply.b"}), time.Time{})
	w.Watch("r2", 7, slices.Values([]string{"reply.c"}), time.Time{})
	w.Watch("r1", 7, slices.Values([]string{"reply.c"}), time.Time{}) // the same record: watched already
	if err := w.cfg.Conn.Publish("reply.b", nil); err != nil {
		t.Fatal(err)
	}
	for checks := 0; checks < 3; {
		if next(t, checked) == "r1" { // r2 is checked once, some time after it was new
			checks++
		}
	}
	w.Watch("r1", 8, slices.Values([]string{"reply.d"}), time.Time{})
	w.Remove("r2")
	if w.Len() != 1 || w.cfg.Conn.NumSubscriptions() != 1 {
		t.Errorf("%d runs, %d subscriptions", w.Len(), w.cfg.Conn.NumSubscriptions())
	}
	w.Close()
	w.Watch("r3", 1, slices.Values([]string{"reply.e"}), time.Time{})
	if w.Len() != 0 || w.cfg.Conn.NumSubscriptions() != 0 {
		t.Errorf("%d runs, %d subscriptions after the close", w.Len(), w.cfg.Conn.NumSubscriptions())
	}
}

func TestARunIsCheckedAtItsTime(t *testing.T) {
	t.Parallel()
	w, checked := watching(t, nil)
	w.Watch("r1", 1, slices.Values([]string(nil)), time.Now().Add(time.Millisecond))
	for range 3 { // at its time, and some times more
		if got := next(t, checked); got != "r1" {
			t.Errorf("%s was checked", got)
		}
	}
}

// An answer that came just before the run was watched is found some time after that; one that
// came while its record changed is found as soon as it would have been.
func TestARunIsCheckedAfterItIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checked atomic.Int64
		w := New(Config{Log: slog.New(slog.DiscardHandler), Check: func(string) { checked.Add(1) }})
		defer w.Close()
		want := func(after time.Duration, n int64) {
			t.Helper()
			time.Sleep(after)
			if synctest.Wait(); checked.Load() != n {
				t.Fatalf("%d checks, want %d", checked.Load(), n)
			}
		}
		w.Watch("r1", 7, slices.Values([]string(nil)), time.Time{})
		want(recheckNew-time.Millisecond, 0)
		want(2*time.Millisecond, 1)
		want(time.Hour, 1)
		w.checkRepeatedly("r1")
		want(0, 2)
		w.Watch("r1", 8, slices.Values([]string(nil)), time.Time{})
		want(recheckFirst+time.Millisecond, 3)
		w.Remove("r1")
		want(time.Hour, 3)
	})
}

// Beyond a bound of single checks all runs are checked, and nothing blocks.
func TestTooManyChecksBecomeACheckOfAll(t *testing.T) {
	t.Parallel()
	over, all := make(chan struct{}), &atomic.Int64{}
	w, _ := watching(t, func(cfg *Config) {
		cfg.Check = func(string) { <-over }
		cfg.CheckAll = func() { all.Add(1) }
	})
	for range maxChecks + 10 {
		w.CheckSoon("r")
	}
	close(over)
	if n := all.Load(); n < 8 || n > 10 {
		t.Errorf("all were to be checked %d times", n)
	}
}

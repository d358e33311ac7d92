package sched

import (
	"runtime"
	"testing"
	"time"
)

func equalTo[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// sleeper starts a taker, waits until it sleeps, and returns what it takes.
func sleeper(t *testing.T, q *Queue[job]) <-chan job {
	t.Helper()
	took := make(chan job, 1)
	w := q.Taker()
	go func() {
		if task, ok := q.Take(w, false); ok {
			took <- task
		}
		close(took)
	}()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.asleep) == 0 || q.asleep[len(q.asleep)-1] != w {
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
	}
	return took
}

func TestNoTakerIsWokenForWhatTheAwakeWillSoonDo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		usual time.Duration
		tasks int
		wakes int
	}{
		{"brief", time.Microsecond, 50, 0},
		{"more than the patience", time.Microsecond, 51, 1},
		{"long", time.Millisecond, 1, 1},
		{"many long", time.Millisecond, 5, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := NewQueue[job](100)
			for range 3 {
				sleeper(t, q)
			}
			q.Taker()
			q.watched = true // nothing may happen by itself
			q.usual = c.usual
			for n := range c.tasks {
				put(q, 2, n)
			}
			q.mu.Lock()
			equalTo(t, "woken", 3-len(q.asleep), c.wakes)
			q.mu.Unlock()
			q.Close()
		})
	}
}

func TestTheWatchFindsAWorkerThatTakesLong(t *testing.T) {
	t.Parallel()
	q := NewQueue[job](10)
	took := sleeper(t, q)
	w := q.Taker()
	q.usual, q.watched = time.Nanosecond, true // tasks were brief, and nothing may happen by itself
	put(q, 2, 1)
	take(q, w, false)
	put(q, 2, 2)
	q.mu.Lock()
	equalTo(t, "asleep while the first task runs", len(q.asleep), 1)
	q.mu.Unlock()
	q.look()
	q.look()
	select {
	case task := <-took:
		equalTo(t, "taken", task.id, "2")
	case <-time.After(10 * time.Second):
		t.Fatal("the second task waits for the first")
	}
	equalTo(t, "awake", q.awake, 1)
	put(q, 2, 3)
	take(q, w, true)
	equalTo(t, "awake when the first task has ended", q.awake, 2)
	q.Close()
}

package sched

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// job is a task of a test.
type job struct {
	level int
	id    string
}

func put(q *Queue[job], level, n int) bool { return q.Put(job{level, fmt.Sprint(n)}, level) }

func take(q *Queue[job], w *Taker, finished bool) job {
	j, _ := q.Take(w, finished)
	return j
}

func TestQueueDrawsByWeight(t *testing.T) {
	t.Parallel()
	q := NewQueue[job](1000)
	w := q.Taker()
	for n := range 100 {
		for level := range Levels {
			put(q, level, n)
		}
	}
	for round := range 3 {
		var count [Levels]int
		for range 15 {
			count[take(q, w, true).level]++
		}
		if want := [Levels]int{8, 4, 2, 1}; count != want {
			t.Errorf("round %d: %v", round, count)
		}
	}
}

func TestLowPriorityNeverStarves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueue[job](1 << 20)
		w := q.Taker()
		// Some history, so that the credits are anywhere.
		for _, level := range rapid.SliceOf(rapid.IntRange(0, Levels-1)).Draw(t, "history") {
			put(q, level, 0)
			take(q, w, true)
		}
		put(q, Levels-1, 1)
		for turn := 1; ; turn++ {
			for range 3 { // more comes in than goes out
				put(q, rapid.IntRange(0, 2).Draw(t, "arrival"), 0)
			}
			if take(q, w, true).level == Levels-1 {
				return
			}
			if turn > 30 {
				t.Fatal("low still waits after two rounds")
			}
		}
	})
}

// The queue against a model that is a list for each priority.
func TestQueueKeepsOrderAndBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		q := NewQueue[job](limit)
		w := q.Taker()
		waiting, taken, n := map[int][]string{}, 0, 0
		size := func() (s int) {
			for _, list := range waiting {
				s += len(list)
			}
			return s
		}
		for _, op := range rapid.SliceOfN(rapid.IntRange(0, 9), 1, 200).Draw(t, "ops") {
			switch {
			case op < 6:
				n++
				p := rapid.IntRange(0, 3).Draw(t, "priority")
				ok := put(q, p, n)
				if want := size()+taken < limit; ok != want {
					t.Fatalf("put with %d waiting and %d taken of %d: %t", size(), taken, limit, ok)
				}
				if ok {
					waiting[p] = append(waiting[p], fmt.Sprint(n))
				}
			case op < 8 && size() > 0:
				finished := taken > 0 && rapid.Bool().Draw(t, "finished")
				if finished {
					taken--
				}
				task := take(q, w, finished)
				taken++
				p := task.level
				if waiting[p][0] != task.id {
					t.Fatalf("took %s, and %s was first", task.id, waiting[p][0])
				}
				waiting[p] = waiting[p][1:]
			case op == 8:
				victim := fmt.Sprint(rapid.IntRange(1, max(1, n)).Draw(t, "victim"))
				q.Remove(func(j job) bool { return j.id == victim })
				for p, list := range waiting {
					for i, id := range list {
						if id == victim {
							waiting[p] = append(append([]string{}, list[:i]...), list[i+1:]...)
							break
						}
					}
				}
			}
			if q.Len() != size() {
				t.Fatalf("%d wait, want %d", q.Len(), size())
			}
		}
		if left := len(q.Close()); left != size() {
			t.Fatalf("close gave back %d of %d", left, size())
		}
		if put(q, 2, 0) || take(q, w, false) != (job{}) {
			t.Fatal("a closed queue still works")
		}
	})
}

func TestQueueGivesEveryTaskToOneTaker(t *testing.T) {
	t.Parallel()
	const tasks = 2000
	q := NewQueue[job](tasks)
	var mu sync.Mutex
	got := map[string]int{}
	var takers sync.WaitGroup
	var all sync.WaitGroup
	all.Add(tasks)
	for range 4 {
		takers.Go(func() {
			w := q.Taker()
			for task, ok := q.Take(w, false); ok; task, ok = q.Take(w, true) {
				mu.Lock()
				got[task.id]++
				mu.Unlock()
				all.Done()
			}
		})
	}
	for n := range tasks {
		for !put(q, n%4, n) {
		}
	}
	all.Wait()
	q.Close()
	takers.Wait()
	if len(got) != tasks {
		t.Errorf("%d of %d tasks came out", len(got), tasks)
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("task %s came out %d times", id, n)
		}
	}
}

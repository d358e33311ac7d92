package mesh

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/aeemesh/aeemesh/envelope"
)

func queued(p envelope.Priority, n int) *Task {
	return &Task{Envelope: &envelope.Envelope{ID: fmt.Sprint(n), Priority: p}}
}

func TestQueueDrawsByWeight(t *testing.T) {
	t.Parallel()
	q := newQueue(1000)
	w := q.worker()
	for n := range 100 {
		for _, p := range envelope.Priorities {
			q.put(queued(p, n))
		}
	}
	for round := range 3 {
		count := map[envelope.Priority]int{}
		for range 15 {
			count[q.take(w, true).Envelope.Priority]++
		}
		if want := (map[envelope.Priority]int{"urgent": 8, "high": 4, "normal": 2, "low": 1}); !reflect.DeepEqual(count, want) {
			t.Errorf("round %d: %v", round, count)
		}
	}
}

func TestLowPriorityNeverStarves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue(1 << 20)
		w := q.worker()
		// Some history, so that the credits are anywhere.
		for _, level := range rapid.SliceOf(rapid.IntRange(0, levels-1)).Draw(t, "history") {
			q.put(queued(envelope.Priorities[level], 0))
			q.take(w, true)
		}
		q.put(queued(envelope.PriorityLow, 1))
		for turn := 1; ; turn++ {
			for range 3 { // more comes in than goes out
				q.put(queued(envelope.Priorities[rapid.IntRange(0, 2).Draw(t, "arrival")], 0))
			}
			if q.take(w, true).Envelope.Priority == envelope.PriorityLow {
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
		q := newQueue(limit)
		w := q.worker()
		waiting, taken, n := map[envelope.Priority][]string{}, 0, 0
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
				p := envelope.Priorities[rapid.IntRange(0, 3).Draw(t, "priority")]
				ok := q.put(queued(p, n))
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
				task := q.take(w, finished)
				taken++
				p := task.Envelope.Priority
				if waiting[p][0] != task.Envelope.ID {
					t.Fatalf("took %s, and %s was first", task.Envelope.ID, waiting[p][0])
				}
				waiting[p] = waiting[p][1:]
			case op == 8:
				victim := fmt.Sprint(rapid.IntRange(1, max(1, n)).Draw(t, "victim"))
				q.remove(func(t *Task) bool { return t.Envelope.ID == victim })
				for p, list := range waiting {
					for i, id := range list {
						if id == victim {
							waiting[p] = append(append([]string{}, list[:i]...), list[i+1:]...)
							break
						}
					}
				}
			}
			if q.len() != size() {
				t.Fatalf("%d wait, want %d", q.len(), size())
			}
		}
		if left := len(q.close()); left != size() {
			t.Fatalf("close gave back %d of %d", left, size())
		}
		if q.put(queued(envelope.PriorityNormal, 0)) || q.take(w, false) != nil {
			t.Fatal("a closed queue still works")
		}
	})
}

func TestQueueGivesEveryTaskToOneTaker(t *testing.T) {
	t.Parallel()
	const tasks = 2000
	q := newQueue(tasks)
	var mu sync.Mutex
	got := map[string]int{}
	var takers sync.WaitGroup
	var all sync.WaitGroup
	all.Add(tasks)
	for range 4 {
		takers.Go(func() {
			w := q.worker()
			for task := q.take(w, false); task != nil; task = q.take(w, true) {
				mu.Lock()
				got[task.Envelope.ID]++
				mu.Unlock()
				all.Done()
			}
		})
	}
	for n := range tasks {
		for !q.put(queued(envelope.Priorities[n%4], n)) {
		}
	}
	all.Wait()
	q.close()
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

package deadlines

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type task struct {
	name  string
	entry Entry[*task]
}

func names(tasks []*task) (out []string) {
	for _, t := range tasks {
		out = append(out, t.name)
	}
	slices.Sort(out)
	return out
}

// listed returns a list, and what it has called back so far.
func listed() (l *List[*task], overdue, held func() []string) {
	var mu sync.Mutex
	var late, named []*task
	l = &List[*task]{
		Overdue: func(_ time.Time, tasks []*task) { mu.Lock(); defer mu.Unlock(); late = append(late, tasks...) },
		Held:    func(t *task) { mu.Lock(); defer mu.Unlock(); named = append(named, t) },
	}
	return l, func() []string { synctest.Wait(); mu.Lock(); defer mu.Unlock(); return names(late) },
		func() []string { synctest.Wait(); mu.Lock(); defer mu.Unlock(); return names(named) }
}

func TestTasksAreOverdueAtTheirDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, overdue, _ := listed()
		defer l.Stop()
		now := time.Now()
		all := map[string]*task{}
		for name, after := range map[string]time.Duration{"a": time.Second, "b": 3 * time.Second, "c": 2 * time.Second, "d": 2 * time.Second, "e": time.Hour} {
			all[name] = &task{name: name}
			l.Add(&all[name].entry, all[name], now.Add(after), time.Time{})
		}
		l.Remove(&all["c"].entry)
		l.Remove(&all["c"].entry)
		l.Due(&all["c"].entry, now.Add(time.Millisecond)) // it is in no list
		l.Due(&all["e"].entry, now.Add(2*time.Second))
		for _, want := range [][]string{{"a"}, {"a", "d", "e"}, {"a", "b", "d", "e"}} {
			time.Sleep(time.Second)
			if got := overdue(); !slices.Equal(got, want) {
				t.Errorf("after %v overdue are %v, want %v", time.Since(now), got, want)
			}
		}
		if left := l.Matching(nil); len(left) > 0 {
			t.Errorf("still listed: %v", names(left))
		}
	})
}

func TestATaskIsHeldOnceIfItIsStillListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _, held := listed()
		defer l.Stop()
		now, all := time.Now(), []*task{{name: "a"}, {name: "b"}, {name: "never"}, {name: "later"}}
		for i, at := range []time.Time{now.Add(time.Second), now.Add(time.Second), {}, now.Add(2 * time.Second)} {
			l.Add(&all[i].entry, all[i], now.Add(time.Hour), at)
		}
		l.Remove(&all[1].entry)
		time.Sleep(time.Second)
		if got := held(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("held are %v", got)
		}
		time.Sleep(time.Minute)
		if got := held(); !slices.Equal(got, []string{"a", "later"}) {
			t.Errorf("held are %v", got)
		}
		if got := names(l.Matching(func(t *task) bool { return t.name != "a" })); !slices.Equal(got, []string{"later", "never"}) {
			t.Errorf("matching are %v", got)
		}
	})
}

package canceltree

import "testing"

// A run that says that it has sent a task of another keeps the cancel of the real caller's from
// nothing: both are visited, each once.
func TestATaskIsVisitedForEachCaller(t *testing.T) {
	t.Parallel()
	w := &walk{seen: map[visit]bool{}}
	a, b := branch{from: "agent.a", run: "run-1"}, branch{from: "agent.b", run: "run-1"}
	if got := w.fresh([]branch{a, b, a, b}); len(got) != 2 || got[0].from != a.from || got[1].from != b.from {
		t.Errorf("fresh: %+v", got)
	}
	if got := w.fresh([]branch{a, b}); len(got) != 0 {
		t.Errorf("visited again: %+v", got)
	}
}

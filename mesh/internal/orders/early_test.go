package orders

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
)

func TestEarlyCancels(t *testing.T) {
	t.Parallel()
	var e Early
	now := time.Now()
	of := func(id string, came time.Time) (from []string) {
		for _, c := range e.Of(id, came) {
			from = append(from, c.From)
		}
		return from
	}
	equal := func(what string, got []string, want ...string) {
		t.Helper()
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v, not %v", what, got, want)
		}
	}
	long := strings.Repeat("x", subject.MaxID+1)
	for _, c := range []Cancel{{ID: "a", From: "1"}, {ID: "b", From: "2"}, {ID: "a", From: "3"}, {From: "4"}, {ID: long, From: "5"}} {
		e.Keep(c, now)
	}
	equal("of a task", of("a", now), "1", "3")
	equal("of none", of("c", now))
	equal("without an id", of("", now))
	equal("with a long id", of(long, now))
	equal("at the end", of("b", now.Add(earlyFor)), "2")
	equal("after the end", of("b", now.Add(earlyFor+1)))
	if len(e.kept) != 0 || len(e.byID) != 0 || e.n.Load() != 0 {
		t.Errorf("kept: %v, %v, %d", e.kept, e.byID, e.n.Load())
	}
	for i := range earlyMost + 2 {
		e.Keep(Cancel{ID: strconv.Itoa(i / 3), From: strconv.Itoa(i)}, now)
	}
	equal("of the oldest", of("0", now), "2")
	equal("of the newest", of(strconv.Itoa((earlyMost+1)/3), now), "255", "256", "257")
	if len(e.kept) != earlyMost {
		t.Errorf("%d are kept", len(e.kept))
	}
}

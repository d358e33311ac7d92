package jetstream_test

import (
	"fmt"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// Finding 4 of the security review: for a store that is half full, an entity's own share
// is estimated: from a sample if there are many records, and without those that a sweep
// would delete.
func TestSharesAreWhatAnEntityHolds(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js := jetstream.Gather(start(t))
	const limit = 8 << 20
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxBytes: limit}, jetstream.ObjectsState: {MaxBytes: limit}}})
	s := jetstream.NewStates(js, subject.Map{})
	shares := func(entity string, soon int64) (records, objects jetstream.Share) {
		t.Helper()
		all, err := s.Shares(ctx, entity, soon)
		if err != nil || len(all) != 2 || all[0].Store != "KV_aee_state" || all[1].Store != "OBJ_aee_state_objects" || all[0].MaxBytes != limit {
			t.Fatalf("shares %+v, %v", all, err)
		}
		return all[0], all[1]
	}
	about := func(what string, got, want float64) {
		t.Helper()
		if got < 0.8*want-0.001 || got > 1.2*want+0.001 {
			t.Errorf("%s is %.3f, want about %.3f", what, got, want)
		}
	}
	kib := func(n int) []byte { return make([]byte, n<<10) }
	done := jetstream.Note{Status: "completed", Work: 1}
	for i := range 20 {
		id := state.ID{Entity: "agent.x", Run: fmt.Sprint("revised", i)}
		rev := putRun(t, s, id, 0, kib(50), jetstream.Note{Status: "running"})
		putRun(t, s, id, rev, kib(50), jetstream.Note{Status: "running"})
	}
	if r, _ := shares("agent.x", 0); r.Used > 0.5 || r.Own != 0 || r.Crowded() {
		t.Errorf("before the store is half full: %+v", r)
	}
	for i := range 160 {
		putRun(t, s, state.ID{Entity: "agent.y", Run: fmt.Sprint("small", i)}, 0, kib(16), jetstream.Note{Status: "paused"})
	}
	const mib = 1.0 / 8
	r, o := shares("agent.x", 0)
	about("used", r.Used, (2000+160*16)*mib/1024)
	about("x's share of the records", r.Own, 2000*mib/1024)
	equalShare(t, "x's share of the objects", o.Own, 0)
	r, _ = shares("agent.y", 0)
	about("y's share", r.Own, 160*16*mib/1024)
	if !r.Crowded() {
		t.Errorf("y's share is no more than fair: %+v", r)
	}
	r, _ = shares("agent.z", limit/8)
	about("the share of one that will store 1 MiB", r.Own, mib)

	for i := range 12 {
		putRun(t, s, state.ID{Entity: "agent.x", Run: fmt.Sprint("large", i)}, 0, kib(400), jetstream.Note{Status: "running", Work: 1})
	}
	_, o = shares("agent.x", 0)
	about("x's share of the objects", o.Own, 12*400*mib/1024)
	_, o = shares("agent.y", 0)
	equalShare(t, "y's share of the objects", o.Own, 0)

	// Ended runs count until a sweep would delete them.
	for i := range 160 {
		id := state.ID{Entity: "agent.y", Run: fmt.Sprint("small", i)}
		rec, err := s.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		putRun(t, s, id, rec.Revision, []byte("{}"), done)
	}
	if r, _ = shares("agent.y", 0); r.Own == 0 {
		t.Error("what ended just now does not count")
	}
	for entity, want := range map[string]float64{"agent.y": 0, "agent.x": 2000 * mib / 1024} {
		all, err := jetstream.SharesNow(ctx, s, entity)
		if err != nil {
			t.Fatal(err)
		}
		about(entity+"'s share when what has ended may go", all[0].Own, want)
	}
}

// The documents of a run grow, and the estimate takes the newest for all of them. No part
// of a store is larger than the whole.
func TestAShareIsNoLargerThanWhatIsUsed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js := jetstream.Gather(start(t))
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxBytes: 1 << 20}}})
	s := jetstream.NewStates(js, subject.Map{})
	for i := range 8 {
		id := state.ID{Entity: "agent.x", Run: fmt.Sprint("grown", i)}
		rev := putRun(t, s, id, 0, make([]byte, 1<<10), jetstream.Note{Status: "running"})
		putRun(t, s, id, rev, make([]byte, 75<<10), jetstream.Note{Status: "running"})
	}
	all, err := s.Shares(ctx, "agent.x", 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := all[0]; r.Used < 0.5 || r.Own != r.Used || !r.Crowded() {
		t.Errorf("%+v", r)
	}
}

// An entity may use as much as is free, and a quarter at most: so several entities do not
// fill a store together, and one that uses little goes on.
func TestAShareIsNoLargerThanWhatIsFree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		used, own float64
		crowded   bool
	}{
		{0.50, 0.50, false}, {0.51, 0.24, false}, {0.51, 0.26, true}, {0.75, 0.24, false},
		{0.79, 0.20, false}, {0.81, 0.20, true}, {0.96, 0.24, true}, {0.96, 0.05, true}, {0.96, 0.03, false}, {1.01, 0.01, true},
	} {
		if s := (jetstream.Share{Used: c.used, Own: c.own}); s.Crowded() != c.crowded {
			t.Errorf("crowded %t, with a fair share of %.2f: %+v", s.Crowded(), s.Fair(), s)
		}
	}
}

func equalShare(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

package learn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
)

// optOut does what "aeemesh schema forget --opt-out" does.
func (r *rig) optOut(client string, out bool) {
	r.Helper()
	raw, revision, err := r.pools.OptOuts(r.Context(), ferries)
	if err != nil {
		r.Fatal(err)
	}
	list, err := learn.ReadOptOuts(raw)
	if err != nil {
		r.Fatal(err)
	}
	if _, err := list.Set(client, out); err != nil {
		r.Fatal(err)
	}
	if raw, err = list.Encode(); err != nil {
		r.Fatal(err)
	}
	if _, err := r.pools.SwapOptOuts(r.Context(), ferries, raw, revision); err != nil {
		r.Fatal(err)
	}
	id := learn.PoolID("ferry_booking", "")
	raw, revision, err = r.pools.Get(r.Context(), ferries, id)
	if err != nil || raw == nil {
		return
	}
	p, err := evolve.Open(raw)
	if err != nil {
		r.Fatal(err)
	}
	p.Forget(evolve.Client(client), r.clock())
	if raw, err = p.Encode(r.clock()); err != nil {
		r.Fatal(err)
	}
	if _, err := r.pools.Swap(r.Context(), ferries, id, raw, revision); err != nil {
		r.Fatal(err)
	}
}

// An opt-out takes effect at once, also in workers that have read the list and the pool before, for
// counts and for texts; and also before anything was learned.
func TestAnOptOutHoldsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.learner(nil)
	l.View(t.Context(), "ferry_booking", client(1)) // the list and the pool are read: both are empty
	r.optOut("agent.c1", true)
	wait(t, says(l, "early", client(1), "a pink balloon"))
	for i := range 6 {
		wait(t, says(l, fmt.Sprint("task", i), client(i+2), "a window seat"))
	}
	l.Look(t.Context())
	if clusters := r.stored("").Clusters(r.clock()); len(clusters) != 1 || clusters[0].Votes != 6 {
		t.Fatalf("said before anything was learned: %+v", clusters)
	}
	use := func(from sdsi.Sender, id string) {
		wait(t, l.Observe("ferry_booking", from, sdsi.Seen{ID: id, Keys: []evolve.Use{{Key: "window_seat"}}, Others: []string{"a kayak"},
			Values: map[string]json.RawMessage{"window_seat": json.RawMessage("true")}}))
	}
	use(client(2), "use1")
	r.optOut("agent.c2", true)
	use(client(2), "use2")
	l.Told("ferry_booking", client(2), []string{"window_seat"})
	l.Look(t.Context())
	stored := r.stored("")
	if m := stored.Keys(r.clock())[0].Metrics; m.Payloads != 1 || m.Present != 1 {
		t.Errorf("counted after the opt-out: %+v", m)
	}
	if stored.Forget(evolve.Client("agent.c2"), r.clock()) {
		t.Error("something is stored of a client that has opted out")
	}
	// Opt in again.
	r.optOut("agent.c2", false)
	r.pass(time.Minute)
	l.Look(t.Context())
	use(client(2), "use3")
	if m := r.stored("").Keys(r.clock())[0].Metrics; m.Payloads != 2 {
		t.Errorf("not counted after the opt-in: %+v", m)
	}
}

// interrupted is a store that calls a function after it has made one of its answers, and before the
// worker gets it.
type interrupted struct {
	*jetstream.Pools
	at    int // the number of the answer
	count int
	f     func()
	stale bool // reads return the list as it was before the first opt-out
}

func (s *interrupted) answered() {
	if s.count++; s.count == s.at {
		s.f()
	}
}

func (s *interrupted) Get(ctx context.Context, entity, id string) ([]byte, uint64, error) {
	defer s.answered()
	return s.Pools.Get(ctx, entity, id)
}

func (s *interrupted) Swap(ctx context.Context, entity, id string, pool []byte, revision uint64) (uint64, error) {
	defer s.answered()
	return s.Pools.Swap(ctx, entity, id, pool, revision)
}

func (s *interrupted) OptOuts(ctx context.Context, entity string) ([]byte, uint64, error) {
	defer s.answered()
	if s.stale {
		return nil, 0, nil
	}
	return s.Pools.OptOuts(ctx, entity)
}

// Whenever an opt-out happens, nothing of the client is stored in the end: also while a worker
// reads the list and the pool, and while it stores the first pool.
func TestAnOptOutHoldsWheneverItComes(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{false, true} {
		for at := 1; ; at++ {
			r := newRig(t)
			if there {
				wait(t, says(r.learner(nil), "before", client(9), "a window seat"))
			}
			store := &interrupted{Pools: r.pools, at: at, f: func() { r.optOut("agent.c1", true) }}
			l := r.learner(func(c *learn.Config) { c.Pools = store })
			wait(t, says(l, "early", client(1), "a pink balloon"))
			if store.count < at {
				break
			}
			wait(t, says(l, "late", client(1), "a blue balloon"))
			wait(t, says(l, "other", client(2), "a window seat"))
			if p := r.stored(""); p.Forget(evolve.Client("agent.c1"), r.clock()) || len(p.Clusters(r.clock())) != 1 {
				t.Errorf("a pool is there: %v, opted out after answer %d: %+v", there, at, p.Clusters(r.clock()))
			}
		}
	}
}

// Texts without a signature are not stored under a client's name; an opt-out prevents them all the
// same.
func TestAnOptOutHoldsWithoutASignature(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.learner(nil)
	wait(t, says(l, "1", sdsi.Sender{Entity: "agent.c1"}, "a window seat"))
	r.optOut("agent.c1", true)
	wait(t, says(l, "2", sdsi.Sender{Entity: "agent.c1"}, "a pink balloon"), says(l, "3", sdsi.Sender{Entity: "agent.c2"}, "a kayak"))
	if got := r.stored("").Clusters(r.clock()); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// Each pool reads the list of opt-outs by itself.
func TestEachPoolHasItsOwnOptOuts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store := &interrupted{Pools: r.pools}
	cars, err := template.Parse([]byte(strings.NewReplacer("ferry_v1", "car_v1", "ferry_booking", "car_rental").Replace(ferryTemplate)))
	if err != nil {
		t.Fatal(err)
	}
	l := r.learner(func(c *learn.Config) { c.Pools, c.Templates = store, append(c.Templates, cars) })
	wait(t, says(l, "1", client(2), "a window seat"))
	r.optOut("agent.c1", true)
	wait(t, says(l, "2", client(3), "a window seat")) // the pool and the list are read again
	store.stale = true                                // a delayed answer
	l.View(t.Context(), "car_rental", client(4))
	wait(t, says(l, "3", client(1), "a pink balloon"))
	if p := r.stored(""); p.Forget(evolve.Client("agent.c1"), r.clock()) {
		t.Errorf("%+v", p.Clusters(r.clock()))
	}
}

// The list is bounded; beyond the bound there is an error.
func TestOptOutsAreBounded(t *testing.T) {
	t.Parallel()
	list, err := learn.ReadOptOuts(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range learn.MaxOptOuts {
		if changed, err := list.Set(fmt.Sprint("agent.c", i), true); !changed || err != nil {
			t.Fatal(i, changed, err)
		}
	}
	if _, err := list.Set("agent.one-more", true); err == nil {
		t.Error("one more than the bound")
	}
	if changed, err := list.Set("agent.c1", true); changed || err != nil {
		t.Error(changed, err)
	}
	raw, err := list.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := learn.ReadOptOuts(raw)
	if err != nil || !again.Has("agent.c9999") || again.Has("agent.one-more") {
		t.Error(err)
	}
	long := learn.OptOuts{Version: 1}
	for i := range 5000 {
		if _, err := long.Set(fmt.Sprintf("agent.c%0190d", i), true); err != nil {
			t.Fatal(err)
		}
	}
	if raw, err := long.Encode(); err == nil {
		t.Errorf("%d bytes are stored", len(raw))
	}
	if twice, err := learn.ReadOptOuts([]byte(`{"version":1,"clients":["agent.b","agent.a","agent.b"]}`)); err != nil {
		t.Error(err)
	} else if changed, err := twice.Set("agent.b", false); !changed || err != nil || twice.Has("agent.b") || !twice.Has("agent.a") {
		t.Errorf("%v %+v", err, twice)
	}
	for _, bad := range []string{`{`, `{"version":2}`} {
		if _, err := learn.ReadOptOuts([]byte(bad)); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

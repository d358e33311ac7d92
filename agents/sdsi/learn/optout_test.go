package learn_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
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

// An opt-out holds at once, also in workers that have read the list and the pool before it,
// for what is counted as for what is said; and also before anything was learned.
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
	// In again.
	r.optOut("agent.c2", false)
	r.pass(time.Minute)
	l.Look(t.Context())
	use(client(2), "use3")
	if m := r.stored("").Keys(r.clock())[0].Metrics; m.Payloads != 2 {
		t.Errorf("not counted after the opt-in: %+v", m)
	}
}

// The list is bounded, and says so.
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
	for _, bad := range []string{`{`, `{"version":2}`} {
		if _, err := learn.ReadOptOuts([]byte(bad)); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

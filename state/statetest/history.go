package statetest

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/state"
)

// leastHistory is how many revisions a store must keep at least.
const leastHistory = 8

func testHistory(t *testing.T, s state.Store) {
	const writes = state.HistoryLimit + 7
	revisions := make([]uint64, writes)
	var prev, noise uint64
	for i := range writes {
		prev = put(t, s, id("r"), prev, strconv.Itoa(i))
		revisions[i] = prev
		noise = put(t, s, id("noise"), noise, "n")
	}
	history, err := s.History(background(t), id("r"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(history); n < leastHistory || n > state.HistoryLimit {
		t.Fatalf("the history has %d revisions, want %d to %d", n, leastHistory, state.HistoryLimit)
	}
	from := writes - len(history)
	for i, r := range history {
		if string(r.Data) != strconv.Itoa(from+i) || r.Revision != revisions[from+i] || r.ID != id("r") || r.Time.IsZero() {
			t.Errorf("history[%d] is %+v, want %d at revision %d", i, r, from+i, revisions[from+i])
		}
	}
}

func testAt(t *testing.T, s state.Store) {
	ctx := background(t)
	first := put(t, s, id("r"), 0, "1")
	other := put(t, s, id("other"), 0, "o")
	second := put(t, s, id("r"), first, "2")
	for rev, want := range map[uint64]string{first: "1", second: "2"} {
		if r, err := s.At(ctx, id("r"), rev); err != nil || string(r.Data) != want || r.Revision != rev || r.ID != id("r") {
			t.Errorf("At(%d) = %+v, %v, want %s", rev, r, err, want)
		}
	}
	stale := []uint64{0, second + 1000}
	if other != first && other != second { // revisions of two runs may coincide
		stale = append(stale, other)
	}
	for _, rev := range stale {
		r, err := s.At(ctx, id("r"), rev)
		if err == nil {
			t.Errorf("At(%d) = %+v", rev, r)
		}
		wantErr(t, "At of a revision of nothing or of another run", err, state.ErrNotFound)
	}
}

func list(t *testing.T, s state.Store, entity string) map[state.ID]string {
	t.Helper()
	got := map[state.ID]string{}
	for r, err := range s.List(background(t), entity) {
		if err != nil {
			t.Fatalf("List(%q): %v", entity, err)
		}
		if _, twice := got[r.ID]; twice {
			t.Errorf("List(%q) yields %+v twice", entity, r.ID)
		}
		if r.Revision == 0 {
			t.Errorf("List(%q) yields %+v without a revision", entity, r.ID)
		}
		got[r.ID] = string(r.Data)
	}
	return got
}

func testList(t *testing.T, s state.Store) {
	if got := list(t, s, ""); len(got) != 0 {
		t.Errorf("an empty store lists %v", got)
	}
	all := map[state.ID]string{}
	for _, entity := range []string{"agent.a", "agent.ab", "agent.a.b", "agent.A", "service.a"} {
		for _, run := range []string{"1", "2"} {
			id := state.ID{Entity: entity, Run: run}
			rev := put(t, s, id, 0, "old")
			all[id] = entity + "/" + run
			put(t, s, id, rev, all[id])
		}
	}
	if got := list(t, s, ""); !maps.Equal(got, all) {
		t.Errorf("List of all: %v, want %v", got, all)
	}
	want := map[state.ID]string{id("1"): "agent.a/1", id("2"): "agent.a/2"}
	if got := list(t, s, "agent.a"); !maps.Equal(got, want) {
		t.Errorf("List of agent.a: %v, want %v", got, want)
	}
	if got := list(t, s, "agent.nobody"); len(got) != 0 {
		t.Errorf("List of an entity without runs: %v", got)
	}
	for range s.List(background(t), "") {
		break // this must not hang or leave a goroutine behind
	}
}

func testListUnderChange(t *testing.T, s state.Store) {
	const runs = 20
	var stable []state.ID
	for i := range runs {
		id := id("stable" + strconv.Itoa(i))
		put(t, s, id, 0, "0")
		stable = append(stable, id)
	}
	ctx := background(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var prev uint64
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			rev, err := s.Put(ctx, id("busy"), prev, []byte(strconv.Itoa(i)))
			if err != nil {
				t.Errorf("Put: %v", err)
				return
			}
			prev = rev
		}
	})
	for range 5 {
		got := slices.Collect(maps.Keys(list(t, s, "agent.a")))
		for _, id := range stable {
			if !slices.Contains(got, id) {
				t.Errorf("%s is not listed while another run changes", id.Run)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func testDelete(t *testing.T, s state.Store) {
	ctx := background(t)
	if err := s.Delete(ctx, id("never")); err != nil {
		t.Errorf("Delete of nothing: %v", err)
	}
	first := put(t, s, id("r"), 0, "1")
	second := put(t, s, id("r"), first, "2")
	keep := put(t, s, id("keep"), 0, "k")
	for range 2 {
		if err := s.Delete(ctx, id("r")); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		_, err := s.Get(ctx, id("r"))
		wantErr(t, "Get of a deleted run", err, state.ErrNotFound)
	}
	_, err := s.Put(ctx, id("r"), second, []byte("x"))
	wantErr(t, "Put over a deleted run", err, state.ErrChanged)
	if got := list(t, s, ""); len(got) != 1 || got[id("keep")] != "k" {
		t.Errorf("after Delete the store lists %v, want keep", got)
	}
	again := put(t, s, id("r"), 0, "3")
	if again <= second {
		t.Errorf("the run made anew has revision %d, not above %d", again, second)
	}
	if r := get(t, s, id("r")); string(r.Data) != "3" || r.Revision != again {
		t.Errorf("the run made anew is %+v", r)
	}
	if r := get(t, s, id("keep")); r.Revision != keep {
		t.Errorf("the other run is at revision %d, want %d", r.Revision, keep)
	}
}

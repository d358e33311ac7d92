package statetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/state"
)

// OpenFunc opens an empty store and registers its cleanup.
type OpenFunc func(t *testing.T) state.Store

// An Interrupter is a store whose connection can be cut. Interrupt cuts it and returns
// when it is cut; the store must reconnect by itself.
type Interrupter interface {
	Interrupt()
}

// Run runs the conformance suite of [state.Store].
func Run(t *testing.T, open OpenFunc) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, state.Store)
	}{
		{"keeps what it is given", testKeeps},
		{"compares and swaps", testSwaps},
		{"lets one of many create", testCreateRace},
		{"lets one of many update", testUpdateRace},
		{"keeps a history in order", testHistory},
		{"tells over which revision", testOver},
		{"finds revisions", testAt},
		{"lists runs by entity", testList},
		{"lists under change", testListUnderChange},
		{"deletes", testDelete},
		{"keeps big documents", testBig},
		{"does not mix up hostile ids", testHostileIDs},
		{"refuses what is no id", testBadIDs},
		{"keeps nothing of the caller's", testRetention},
		{"obeys its context", testContext},
		{"outlives a lost connection", testInterrupt},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			c.test(t, open(t))
		})
	}
}

// patience is the timeout of waits that should be short; a passing test never waits so
// long.
const patience = 30 * time.Second

func id(run string) state.ID { return state.ID{Entity: "agent.a", Run: run} }

func background(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func put(t *testing.T, s state.Store, id state.ID, prev uint64, data string) uint64 {
	t.Helper()
	rev, err := s.Put(background(t), id, prev, []byte(data))
	if err != nil {
		t.Fatalf("Put over revision %d: %v", prev, err)
	}
	if rev <= prev {
		t.Fatalf("revision %d after %d", rev, prev)
	}
	return rev
}

func get(t *testing.T, s state.Store, id state.ID) state.Record {
	t.Helper()
	r, err := s.Get(background(t), id)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return r
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
	for _, other := range []error{state.ErrNotFound, state.ErrChanged, state.ErrUncertain} {
		if other != want && errors.Is(err, other) {
			t.Errorf("%s: error %v is %v too", what, err, other)
		}
	}
}

func testKeeps(t *testing.T, s state.Store) {
	ctx := background(t)
	_, err := s.Get(ctx, id("r"))
	wantErr(t, "Get of nothing", err, state.ErrNotFound)
	_, err = s.History(ctx, id("r"))
	wantErr(t, "History of nothing", err, state.ErrNotFound)
	_, err = s.At(ctx, id("r"), 1)
	wantErr(t, "At of nothing", err, state.ErrNotFound)

	before := time.Now().Add(-time.Minute)
	data := "{\"a\":\"\x00\xff\"}\n"
	rev := put(t, s, id("r"), 0, data)
	got := get(t, s, id("r"))
	if got.Time.Before(before) || got.Time.After(time.Now().Add(time.Minute)) {
		t.Errorf("stored at %v", got.Time)
	}
	got.Time = time.Time{}
	if want := (state.Record{ID: id("r"), Data: []byte(data), Revision: rev, Swapped: true}); !sameRecord(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	second := put(t, s, id("r"), rev, "2")
	if got := get(t, s, id("r")); string(got.Data) != "2" || got.Revision != second {
		t.Errorf("got %+v, want 2 at revision %d", got, second)
	}
}

func sameRecord(a, b state.Record) bool {
	return a.ID == b.ID && string(a.Data) == string(b.Data) && a.Revision == b.Revision && a.Time.Equal(b.Time) && a.Over == b.Over && a.Swapped == b.Swapped
}

// testOver: every record must say which revision it replaced, however it is read, so that
// a writer can bind a document to it.
func testOver(t *testing.T, s state.Store) {
	ctx := background(t)
	first := put(t, s, id("r"), 0, "1")
	second := put(t, s, id("r"), first, "2")
	third := put(t, s, id("r"), second, strings.Repeat("3", 600<<10)) // large enough to be stored as an object
	over := map[uint64]uint64{first: 0, second: first, third: second}
	check := func(how string, r state.Record) {
		t.Helper()
		if !r.Swapped || r.Over != over[r.Revision] {
			t.Errorf("%s: revision %d was stored over %d, %t, want %d", how, r.Revision, r.Over, r.Swapped, over[r.Revision])
		}
	}
	check("Get", get(t, s, id("r")))
	at, err := s.At(ctx, id("r"), second)
	if err != nil {
		t.Fatal(err)
	}
	check("At", at)
	history, err := s.History(ctx, id("r"))
	if err != nil || len(history) != 3 {
		t.Fatalf("history of %d, %v", len(history), err)
	}
	for _, r := range history {
		check("History", r)
	}
	for r, err := range s.List(ctx, "agent.a") {
		if err != nil {
			t.Fatal(err)
		}
		check("List", r)
	}
}

func testSwaps(t *testing.T, s state.Store) {
	ctx := background(t)
	_, err := s.Put(ctx, id("r"), 7, []byte("x"))
	wantErr(t, "Put over a run that is not there", err, state.ErrChanged)
	_, err = s.Get(ctx, id("r"))
	wantErr(t, "Get after it", err, state.ErrNotFound)

	first := put(t, s, id("r"), 0, "1")
	_, err = s.Put(ctx, id("r"), 0, []byte("x"))
	wantErr(t, "Put of a run that is there", err, state.ErrChanged)
	second := put(t, s, id("r"), first, "2")
	other := put(t, s, id("other"), 0, "o")
	for _, prev := range []uint64{0, first, second + 1, other, 1 << 40} {
		if prev == second {
			continue
		}
		_, err = s.Put(ctx, id("r"), prev, []byte("x"))
		wantErr(t, fmt.Sprintf("Put over revision %d of %d", prev, second), err, state.ErrChanged)
	}
	if got := get(t, s, id("r")); string(got.Data) != "2" || got.Revision != second {
		t.Errorf("after failed writes there is %q at revision %d, want 2 at %d", got.Data, got.Revision, second)
	}
	if h, err := s.History(ctx, id("r")); err != nil || len(h) != 2 {
		t.Errorf("history of %d, %v, want 2: failed writes leave nothing", len(h), err)
	}
}

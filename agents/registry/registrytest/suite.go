package registrytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/registry"
)

// OpenFunc opens an empty registry. It registers its own cleanup.
type OpenFunc func(t *testing.T) registry.Registry

// Run runs the suite.
func Run(t *testing.T, open OpenFunc) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, registry.Registry)
	}{
		{"keeps documents as they are", testKeeps},
		{"compares and swaps", testSwaps},
		{"lets one of many register", testRace},
		{"keeps a history", testHistory},
		{"removes and takes in again", testRemove},
		{"does not mix up keys", testKeys},
		{"refuses what is no record", testRefuses},
		{"keeps nothing of the caller's", testRetention},
		{"tells those who watch", testWatch},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			c.test(t, open(t))
		})
	}
}

// patience bounds waits that are normally short.
const patience = 30 * time.Second

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// record makes a record of an agent, in one of the formats.
func record(t *testing.T, agentID, name, version string) registry.Record {
	t.Helper()
	text := "# as it was <&>\nsc_standard: SC-006\n"
	if agentID != "" {
		text += fmt.Sprintf("agent_id: %q\n", agentID)
	}
	text += fmt.Sprintf("agent:\n  name: %q\n  goal: help\n  skills: [Go review, lint]\n", name)
	if version != "" {
		text += fmt.Sprintf("  version: %q\n", version)
	}
	return parse(t, text, aaif.YAML)
}

func parse(t *testing.T, text string, format aaif.Format) registry.Record {
	t.Helper()
	doc, err := aaif.Parse([]byte(text), aaif.Options{Format: format, Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := registry.New(doc, registry.Options{By: "human.ada", At: time.Date(2026, 5, 1, 8, 0, 0, 5e6, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func put(t *testing.T, r registry.Registry, rec registry.Record, after uint64) uint64 {
	t.Helper()
	rev, err := r.Put(within(t), rec, after)
	if err != nil || rev <= after {
		t.Fatalf("Put after %d: revision %d, %v", after, rev, err)
	}
	return rev
}

const id = "5E0C0000-0000-4000-8000-00000000000A"

func testKeeps(t *testing.T, r registry.Registry) {
	yaml := record(t, id, "Code Reviewer", "1.0.0")
	yaml.Aliases = []string{"reviewer", "the one"}
	cborDoc, err := aaif.JSONToCBOR([]byte(`{"sc_standard":"SC-006","agent":{"name":"Binary","goal":"x"}}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	binary := parse(t, string(cborDoc), aaif.CBOR)
	for _, want := range []registry.Record{yaml, record(t, "", "Nobody Else", ""), binary} {
		rev := put(t, r, want, 0)
		got, err := r.Get(within(t), want.Key())
		if err != nil || !reflect.DeepEqual(got.Record, want) || got.Revision != rev || got.Key != want.Key() || got.Time.IsZero() || got.Err != nil {
			t.Errorf("%+v, %v\nwant %+v at %d", got, err, want, rev)
		}
	}
	if yaml.Key() != strings.ToLower(id) || binary.Key() != "agent.binary" {
		t.Errorf("keys %q, %q", yaml.Key(), binary.Key())
	}
	all, err := r.List(within(t))
	if err != nil || len(all) != 3 || all[0].Key != yaml.Key() || all[2].Key != binary.Key() {
		t.Errorf("listed %+v, %v", all, err)
	}
}

func testSwaps(t *testing.T, r registry.Registry) {
	one, two := record(t, id, "One", "1.0.0"), record(t, id, "One", "2.0.0")
	if _, err := r.Get(within(t), one.Key()); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("nothing there: %v", err)
	}
	first := put(t, r, one, 0)
	for _, after := range []uint64{0, first + 1} {
		if _, err := r.Put(within(t), two, after); !errors.Is(err, registry.ErrChanged) {
			t.Errorf("after %d: %v", after, err)
		}
	}
	second := put(t, r, two, first)
	if err := r.Remove(within(t), one.Key(), first); !errors.Is(err, registry.ErrChanged) {
		t.Errorf("removed at an old revision: %v", err)
	}
	if err := r.Remove(within(t), one.Key(), 0); !errors.Is(err, registry.ErrChanged) {
		t.Errorf("removed at no revision: %v", err)
	}
	if got, err := r.Get(within(t), one.Key()); err != nil || got.Revision != second || got.Record.Version != "2.0.0" {
		t.Errorf("%+v, %v", got, err)
	}
}

func testRace(t *testing.T, r registry.Registry) {
	for after, rounds := uint64(0), 0; rounds < 3; rounds++ {
		var won, lost atomic.Int64
		var next atomic.Uint64
		var wg sync.WaitGroup
		for i := range 8 {
			rec := record(t, id, "One", fmt.Sprintf("%d.0.%d", rounds, i))
			wg.Go(func() {
				rev, err := r.Put(within(t), rec, after)
				switch {
				case err == nil:
					won.Add(1)
					next.Store(rev)
				case errors.Is(err, registry.ErrChanged):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || lost.Load() != 7 {
			t.Fatalf("%d won, %d lost", won.Load(), lost.Load())
		}
		after = next.Load()
	}
}

func testHistory(t *testing.T, r registry.Registry) {
	var revisions []uint64
	after := uint64(0)
	for i := range registry.MaxHistory + 3 {
		after = put(t, r, record(t, id, "One", fmt.Sprintf("1.0.%d", i)), after)
		revisions = append(revisions, after)
	}
	other := put(t, r, record(t, "", "Other", ""), 0)
	key := registry.KeyOf(id, "")
	all, err := r.History(within(t), key)
	if err != nil || len(all) != registry.MaxHistory {
		t.Fatalf("%d kept, %v", len(all), err)
	}
	for i, e := range all {
		if e.Revision != revisions[i+3] || e.Record.Version != fmt.Sprintf("1.0.%d", i+3) {
			t.Errorf("%d: version %s at %d", i, e.Record.Version, e.Revision)
		}
	}
	if got, err := r.At(within(t), key, revisions[5]); err != nil || got.Record.Version != "1.0.5" || got.Revision != revisions[5] {
		t.Errorf("%+v, %v", got, err)
	}
	for _, rev := range []uint64{revisions[0], other, other + 100} {
		if got, err := r.At(within(t), key, rev); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("at %d: %+v, %v", rev, got, err)
		}
	}
	if _, err := r.History(within(t), "agent.nobody"); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
}

func testRemove(t *testing.T, r registry.Registry) {
	rec := record(t, id, "One", "1.0.0")
	rev := put(t, r, rec, 0)
	if err := r.Remove(within(t), rec.Key(), rev); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(within(t), rec.Key()); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
	if all, err := r.List(within(t)); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := r.Put(within(t), rec, rev); !errors.Is(err, registry.ErrChanged) {
		t.Errorf("over what was removed: %v", err)
	}
	put(t, r, rec, 0)
	all, err := r.History(within(t), rec.Key())
	if err != nil || len(all) != 3 || !all[1].Removed || all[1].Record.Entity != "" || all[2].Removed {
		t.Fatalf("%+v, %v", all, err)
	}
	if got, err := r.At(within(t), rec.Key(), all[1].Revision); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("%+v, %v", got, err)
	}
}

func testKeys(t *testing.T, r registry.Registry) {
	ids := []string{"a", "A", "a.b", "a b", "a*", ">", "_a", "a=2E", "a/b", "ä", "$KV", id}
	for i, agentID := range ids {
		put(t, r, record(t, agentID, fmt.Sprintf("agent %d", i), ""), 0)
	}
	for i, agentID := range ids {
		got, err := r.Get(within(t), registry.KeyOf(agentID, ""))
		if err != nil || got.Record.AgentID != agentID || got.Record.Name != fmt.Sprintf("agent %d", i) {
			t.Errorf("%q: %+v, %v", agentID, got.Record, err)
		}
	}
	for _, key := range []string{"", strings.Repeat("x", 2000), "a\x00b", "\xff"} {
		_, err := r.Get(within(t), key)
		if err == nil || errors.Is(err, registry.ErrNotFound) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

func testRefuses(t *testing.T, r registry.Registry) {
	for name, spoil := range map[string]func(*registry.Record){
		"no entity":          func(r *registry.Record) { r.Entity = "" },
		"a person":           func(r *registry.Record) { r.Entity = "human.ada" },
		"no document":        func(r *registry.Record) { r.Document = nil },
		"a large one":        func(r *registry.Record) { r.Document = bytes.Repeat([]byte("x"), registry.MaxDocument+1) },
		"an unknown format":  func(r *registry.Record) { r.Format = "xml" },
		"another's entity":   func(r *registry.Record) { r.AgentID = "agent.other" },
		"an alias like a ID": func(r *registry.Record) { r.Aliases = []string{id} },
		"no UTF-8":           func(r *registry.Record) { r.Document = []byte("\xff") },
		"another document":   func(r *registry.Record) { r.SHA256 = strings.Repeat("0", 64) },
	} {
		rec := record(t, id, "One", "")
		spoil(&rec)
		if _, err := r.Put(within(t), rec, 0); err == nil || errors.Is(err, registry.ErrChanged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := r.List(within(t)); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

func testRetention(t *testing.T, r registry.Registry) {
	rec := record(t, id, "One", "1.0.0")
	want := string(rec.Document)
	rev := put(t, r, rec, 0)
	clear(rec.Document)
	got, err := r.Get(within(t), rec.Key())
	if err != nil {
		t.Fatal(err)
	}
	clear(got.Record.Document)
	if got, err := r.At(within(t), rec.Key(), rev); err != nil || string(got.Record.Document) != want {
		t.Errorf("%q, %v", got.Record.Document, err)
	}
}

func testWatch(t *testing.T, r registry.Registry) {
	rec := record(t, id, "One", "1.0.0")
	first := put(t, r, rec, 0)
	ctx, cancel := context.WithCancel(within(t))
	ready, told, ended := make(chan struct{}), make(chan registry.Entry, 64), make(chan error, 1)
	go func() {
		ended <- r.Watch(ctx, func(e registry.Entry) { told <- e }, func() { close(ready) })
	}()
	next := func(what string) registry.Entry {
		t.Helper()
		select {
		case e := <-told:
			return e
		case <-within(t).Done():
			t.Fatalf("not told of %s", what)
			return registry.Entry{}
		}
	}
	if e := next("what was there"); e.Revision != first || e.Record.Version != "1.0.0" {
		t.Errorf("%+v", e)
	}
	select {
	case <-ready:
	case <-within(t).Done():
		t.Fatal("not ready")
	}
	second := put(t, r, record(t, id, "One", "2.0.0"), first)
	if e := next("the change"); e.Revision != second || e.Record.Version != "2.0.0" {
		t.Errorf("%+v", e)
	}
	if err := r.Remove(within(t), rec.Key(), second); err != nil {
		t.Fatal(err)
	}
	if e := next("the removal"); !e.Removed || e.Key != rec.Key() {
		t.Errorf("%+v", e)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

package statetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/state"
)

func testBig(t *testing.T, s state.Store) {
	ctx := background(t)
	random := rand.NewChaCha8([32]byte{})
	var (
		prev  uint64
		sizes = []int{1, 4 << 10, 64 << 10, 200 << 10, 256 << 10, 300 << 10, 1<<20 + 1, 2 << 20, 100}
		docs  [][]byte
	)
	for _, size := range sizes {
		data := make([]byte, size)
		random.Read(data)
		rev, err := s.Put(ctx, id("big"), prev, data)
		if err != nil {
			t.Fatalf("Put of %d bytes: %v", size, err)
		}
		prev, docs = rev, append(docs, data)
		if r := get(t, s, id("big")); !bytes.Equal(r.Data, data) {
			t.Errorf("%d bytes came back as %d, or others", size, len(r.Data))
		}
		if got := list(t, s, "agent.a")[id("big")]; got != string(data) {
			t.Errorf("%d bytes are listed as %d, or others", size, len(got))
		}
	}
	history, err := s.History(ctx, id("big"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= min(len(history), len(docs)); i++ {
		h, want := history[len(history)-i], docs[len(docs)-i]
		if !bytes.Equal(h.Data, want) {
			t.Errorf("%d bytes are %d in the history, or others", len(want), len(h.Data))
		}
		if r, err := s.At(ctx, id("big"), h.Revision); err != nil || !bytes.Equal(r.Data, want) {
			t.Errorf("At of %d bytes: %d, %v", len(want), len(r.Data), err)
		}
	}
	if err := s.Delete(ctx, id("big")); err != nil {
		t.Errorf("Delete: %v", err)
	}
}

func testHostileIDs(t *testing.T, s state.Store) {
	ids := []state.ID{
		{Entity: "agent.a", Run: "*"}, {Entity: "agent.a", Run: ">"}, {Entity: "agent.a", Run: "."}, {Entity: "agent.a", Run: "a.b"},
		{Entity: "agent.a", Run: " "}, {Entity: "agent.a", Run: "a b"}, {Entity: "agent.a", Run: "\x00"}, {Entity: "agent.a", Run: "\xff\xfe"},
		{Entity: "agent.a", Run: "="}, {Entity: "agent.a", Run: "=2E"}, {Entity: "agent.a", Run: "_kv"}, {Entity: "agent.a", Run: "kv"},
		{Entity: "agent.a", Run: "$KV"}, {Entity: "agent.a", Run: "../x"}, {Entity: "agent.a", Run: "größe"}, {Entity: "agent.a", Run: "A"}, {Entity: "agent.a", Run: "a"},
		{Entity: "agent.a", Run: strings.Repeat("x", state.MaxRun)}, {Entity: "agent.a", Run: strings.Repeat(".", state.MaxRun)},
		{Entity: "agent.a.b", Run: "c"}, {Entity: "agent.a", Run: "b.c"}, {Entity: "agent.größe", Run: "a"}, {Entity: "agent.a=2Eb", Run: "c"},
		{Entity: "agent.a/b", Run: "c"}, {Entity: "agent._x", Run: "c"}, {Entity: "agent.$x", Run: "c"},
		{Entity: "agent." + strings.Repeat("y", 249), Run: strings.Repeat("=", state.MaxRun)},
	}
	revisions := make([]uint64, len(ids))
	for i, id := range ids {
		revisions[i] = put(t, s, id, 0, id.Entity+"\n"+id.Run)
	}
	all := list(t, s, "")
	for i, id := range ids {
		want := id.Entity + "\n" + id.Run
		if r := get(t, s, id); string(r.Data) != want || r.ID != id || r.Revision != revisions[i] {
			t.Errorf("%+v is %q of %+v", id, r.Data, r.ID)
		}
		if h, err := s.History(background(t), id); err != nil || len(h) != 1 || string(h[0].Data) != want {
			t.Errorf("history of %+v: %v, %v", id, h, err)
		}
		if all[id] != want {
			t.Errorf("%+v is listed as %q", id, all[id])
		}
		second := put(t, s, id, revisions[i], "2")
		if r := get(t, s, id); string(r.Data) != "2" || r.ID != id || r.Revision != second {
			t.Errorf("%+v is %q of %+v after a change", id, r.Data, r.ID)
		}
	}
	if len(all) != len(ids) {
		t.Errorf("%d runs are listed, want %d", len(all), len(ids))
	}
}

func testBadIDs(t *testing.T, s state.Store) {
	ctx := background(t)
	for _, id := range []state.ID{
		{}, {Entity: "agent.a"}, {Run: "r"}, {Entity: "agent", Run: "r"}, {Entity: "agent.*", Run: "r"}, {Entity: "agent.>", Run: "r"}, {Entity: "agent..a", Run: "r"},
		{Entity: "agent.a b", Run: "r"}, {Entity: "aee.x", Run: "r"}, {Entity: "agent.a", Run: strings.Repeat("x", state.MaxRun+1)},
		{Entity: "agent." + strings.Repeat("y", 250), Run: "r"},
	} {
		_, putErr := s.Put(ctx, id, 0, []byte("x"))
		_, getErr := s.Get(ctx, id)
		_, atErr := s.At(ctx, id, 1)
		_, historyErr := s.History(ctx, id)
		for what, err := range map[string]error{"Put": putErr, "Get": getErr, "At": atErr, "History": historyErr, "Delete": s.Delete(ctx, id)} {
			if err == nil {
				t.Errorf("%s takes %+v", what, id)
			}
			wantErr(t, what, err, err) // and none of the sentinels
		}
	}
	for _, err := range s.List(ctx, "agent.*") {
		if err == nil {
			t.Error("List takes a wildcard")
		}
	}
	if _, err := s.Put(ctx, id("r"), 0, nil); err == nil {
		t.Error("Put takes nothing")
	}
}

func testRetention(t *testing.T, s state.Store) {
	ctx := background(t)
	data := []byte("mine")
	rev, err := s.Put(ctx, id("r"), 0, data)
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(b []byte) { copy(b, "XXXX") }
	spoil(data)
	check := func(what string, r state.Record) {
		t.Helper()
		if string(r.Data) != "mine" {
			t.Errorf("%s has %q", what, r.Data)
		}
		spoil(r.Data)
	}
	for range 2 {
		check("Get", get(t, s, id("r")))
		r, err := s.At(ctx, id("r"), rev)
		if err != nil {
			t.Fatal(err)
		}
		check("At", r)
		h, err := s.History(ctx, id("r"))
		if err != nil || len(h) != 1 {
			t.Fatal(h, err)
		}
		check("History", h[0])
		for r, err := range s.List(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			check("List", r)
		}
	}
}

func testContext(t *testing.T, s state.Store) {
	rev := put(t, s, id("r"), 0, "1")
	ctx, cancel := context.WithCancel(background(t))
	cancel()
	_, getErr := s.Get(ctx, id("r"))
	_, atErr := s.At(ctx, id("r"), rev)
	_, historyErr := s.History(ctx, id("r"))
	var listErr error
	for _, err := range s.List(ctx, "") {
		listErr = err
	}
	for what, err := range map[string]error{"Get": getErr, "At": atErr, "History": historyErr, "List": listErr} {
		wantErr(t, what+" after the end", err, context.Canceled)
	}
	_, err := s.Put(ctx, id("r"), rev, []byte("2"))
	uncertain := errors.Is(err, state.ErrUncertain)
	if err == nil || errors.Is(err, state.ErrChanged) || !uncertain && !errors.Is(err, context.Canceled) {
		t.Errorf("Put after the end: %v, want %v or %v", err, context.Canceled, state.ErrUncertain)
	}
	if r := get(t, s, id("r")); !uncertain && (string(r.Data) != "1" || r.Revision != rev) {
		t.Errorf("Put after the end has written %q, and does not say that it might have", r.Data)
	}
}

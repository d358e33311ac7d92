package state_test

import (
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
)

// The remaining lifetime of a memory counts down from the capture of a checkpoint to its
// restore, and from one checkpoint to the next (gap 25 of the traceability review).
func TestMemoriesGrowOld(t *testing.T) {
	t.Parallel()
	me := state.Whose{User: "human.ada", Session: "s", Run: "r"}
	captured := time.Now().Add(-10 * time.Minute)
	item := func(key string, ttl int64) aaif.MemoryItem {
		m := aaif.MemoryItem{Scope: aaif.ScopeLongTerm, Key: key, Content: key}
		if ttl != 0 {
			m.TTLRemainingSeconds = aaif.Int(ttl)
		}
		return m
	}
	c := state.New("agent.x", "01J00000000000000000000000", "")
	c.Doc.MemorySnapshot = []aaif.MemoryItem{item("for ever", 0), item("soon", 300), item("later", 3600), item("over", -1)}
	data, err := state.Codec{Now: func() time.Time { return captured }}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = (state.Codec{}).Decode(data); err != nil {
		t.Fatal(err)
	}
	check := func(what string, got []aaif.MemoryItem, left, slack int64) {
		t.Helper()
		if len(got) != 2 || got[0].Key != "for ever" || got[0].TTLRemainingSeconds.IsSet() || got[1].Key != "later" {
			t.Fatalf("%s: %+v", what, got)
		}
		if ttl := got[1].TTLRemainingSeconds.Int64(); ttl > left || ttl < left-slack {
			t.Errorf("%s: %d s are left, want %d", what, ttl, left)
		}
	}
	check("restored", c.Memories(me, me), 3000, 60)

	// Many checkpoints within a second do not round the lifetime down.
	at := captured
	codec := state.Codec{Now: func() time.Time { return at }}
	for range 50 {
		at = at.Add(300 * time.Millisecond)
		if _, err := codec.Encode(c.Clone()); err != nil {
			t.Fatal(err)
		}
		if data, err = codec.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	d, err := state.Codec{}.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Doc.MemorySnapshot; len(got) != 3 || got[1].TTLRemainingSeconds.Int64() != 285 || got[2].TTLRemainingSeconds.Int64() != 3585 {
		t.Errorf("after 15 s of checkpoints: %+v", got)
	}
	// A snapshot that was taken out of the document counts from the time it was taken
	// out.
	c.Remember(d.Doc.MemorySnapshot, at.Add(-time.Minute))
	if _, err := codec.Encode(c); err != nil {
		t.Fatal(err)
	}
	if got := c.Doc.MemorySnapshot; len(got) != 3 || got[1].TTLRemainingSeconds.Int64() != 225 {
		t.Errorf("a minute later: %+v", got)
	}
}

// An item whose time is over to the second is left out: with the value 0 it would never
// expire.
func TestNoMemoryLivesForEverByItsAge(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]int64{59 * time.Second: 1, 59*time.Second + 999*time.Millisecond: 1, time.Minute: 0, time.Hour: 0} {
		c := state.New("agent.x", "01J00000000000000000000000", "")
		c.Doc.MemorySnapshot = []aaif.MemoryItem{{Scope: aaif.ScopeLongTerm, Key: "k", Content: "v", TTLRemainingSeconds: aaif.Int(60)}}
		for _, now := range []time.Time{start, start.Add(after)} {
			data, err := state.Codec{Now: func() time.Time { return now }}.Encode(c)
			if err != nil {
				t.Fatal(err)
			}
			if c, err = (state.Codec{}).Decode(data); err != nil {
				t.Fatal(err)
			}
		}
		left := int64(0)
		if items := c.Doc.MemorySnapshot; len(items) > 0 {
			if left = items[0].TTLRemainingSeconds.Int64(); left == 0 {
				left = -1 // for ever
			}
		}
		if left != want {
			t.Errorf("after %v: %d s are left, want %d (0: it is gone)", after, left, want)
		}
	}
}

package statetest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/state"
)

// watch starts a watcher whose reports arrive at the channel. It ends with the test, and
// must return nil then.
func watch(t *testing.T, s state.Store, id state.ID) <-chan state.Record {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	reports := make(chan state.Record, 1024)
	done := make(chan error, 1)
	go func() {
		done <- s.Watch(ctx, id, func(r state.Record) {
			select {
			case reports <- r:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Watch ended with %v, want nil", err)
			}
		case <-time.After(patience):
			t.Error("Watch does not end with its context")
		}
	})
	return reports
}

// await receives reports until the wanted one of the run arrives. Reports before it must
// be of older revisions; some may be repeated or missing.
func await(t *testing.T, reports <-chan state.Record, id state.ID, want string, revision uint64) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case r := <-reports:
			switch {
			case r.ID != id:
				t.Fatalf("a report of %+v while waiting for %+v", r.ID, id)
			case r.Revision > revision && revision > 0:
				t.Fatalf("a report of revision %d (%q) instead of %d (%q)", r.Revision, r.Data, revision, want)
			case r.Revision == revision || revision == 0 && string(r.Data) == want:
				if string(r.Data) != want {
					t.Fatalf("revision %d is %q, want %q", r.Revision, r.Data, want)
				}
				return
			}
		case <-timeout:
			t.Fatalf("no report of %q", want)
		}
	}
}

func testWatchRun(t *testing.T, s state.Store) {
	put(t, s, id("r2"), 0, "of another run") // another run, which must not be reported
	first := put(t, s, id("r"), 0, "1")
	reports := watch(t, s, id("r"))
	await(t, reports, id("r"), "1", first)
	put(t, s, state.ID{Entity: "agent.a.r", Run: "x"}, 0, "of another entity")
	second := put(t, s, id("r"), first, "2")
	await(t, reports, id("r"), "2", second)

	ctx := background(t)
	if err := s.Delete(ctx, id("r")); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-reports:
		if r.ID != id("r") || r.Data != nil || r.Revision <= second {
			t.Errorf("a deletion is reported as %+v, want no data and a revision above %d", r, second)
		}
	case <-time.After(patience):
		t.Fatal("no report of the deletion")
	}
	await(t, reports, id("r"), "3", put(t, s, id("r"), 0, "3"))

	later := watch(t, s, id("later")) // of a run that does not exist yet
	await(t, later, id("later"), "l", put(t, s, id("later"), 0, "l"))
}

func testWatchMany(t *testing.T, s state.Store) {
	other := state.ID{Entity: "agent.ab", Run: "r"}
	below := state.ID{Entity: "agent.a.b", Run: "r"}
	revisions := map[state.ID]uint64{}
	for _, id := range []state.ID{id("1"), id("2"), other, below} {
		revisions[id] = put(t, s, id, 0, "begin")
	}
	of := func(reports <-chan state.Record, n int) map[state.ID]string {
		got := map[state.ID]string{}
		timeout := time.After(patience)
		for len(got) < n {
			select {
			case r := <-reports:
				got[r.ID] = string(r.Data)
			case <-timeout:
				t.Fatalf("reports %v, want %d runs", got, n)
			}
		}
		return got
	}
	entity, all := watch(t, s, state.ID{Entity: "agent.a"}), watch(t, s, state.ID{})
	if got := of(entity, 2); got[id("1")] != "begin" || got[id("2")] != "begin" {
		t.Errorf("the watcher of agent.a begins with %v", got)
	}
	if got := of(all, 4); got[other] != "begin" || got[below] != "begin" {
		t.Errorf("the watcher of all begins with %v", got)
	}
	for _, id := range []state.ID{other, below} {
		rev := put(t, s, id, revisions[id], "changed")
		await(t, all, id, "changed", rev)
	}
	rev := put(t, s, id("2"), revisions[id("2")], "changed")
	await(t, entity, id("2"), "changed", rev) // and not the records before it
	await(t, all, id("2"), "changed", rev)
}

// A slow watcher may miss changes, but never the newest.
func testWatchSlow(t *testing.T, s state.Store) {
	const writes = 200
	ctx, cancel := context.WithCancel(background(t))
	defer cancel()
	first := put(t, s, id("r"), 0, "0")
	begun, written := make(chan struct{}), make(chan struct{})
	last := strconv.Itoa(writes)
	var seen []state.Record
	done := make(chan error, 1)
	go func() {
		done <- s.Watch(ctx, id("r"), func(r state.Record) {
			if seen = append(seen, r); len(seen) == 1 {
				close(begun)
				<-written
			}
			if string(r.Data) == last {
				cancel()
			}
		})
	}()
	select {
	case <-begun:
	case <-ctx.Done():
		t.Fatal("no report of what is there")
	}
	prev := first
	for i := 1; i <= writes; i++ {
		prev = put(t, s, id("r"), prev, strconv.Itoa(i))
	}
	close(written)
	if err := <-done; err != nil {
		t.Fatalf("Watch: %v", err)
	}
	for i := 1; i < len(seen); i++ {
		if seen[i].Revision <= seen[i-1].Revision {
			t.Errorf("revision %d is reported after %d", seen[i].Revision, seen[i-1].Revision)
		}
	}
	if got := seen[len(seen)-1]; string(got.Data) != last || got.Revision != prev {
		t.Errorf("the last report is %q at revision %d, want %s at %d", got.Data, got.Revision, last, prev)
	}
}

func testInterrupt(t *testing.T, s state.Store) {
	broken, ok := s.(Interrupter)
	if !ok {
		t.Skip("the store has no connection to cut")
	}
	prev := put(t, s, id("r"), 0, "0")
	reports := watch(t, s, id("r"))
	await(t, reports, id("r"), "0", prev)
	for i := range 3 {
		broken.Interrupt()
		prev = putAgain(t, s, id("r"), prev, strconv.Itoa(i+1))
		await(t, reports, id("r"), strconv.Itoa(i+1), prev)
	}
}

// putAgain writes until it is known that the data are stored, as users of the interface
// do.
func putAgain(t *testing.T, s state.Store, id state.ID, prev uint64, data string) uint64 {
	t.Helper()
	ctx := background(t)
	for ctx.Err() == nil {
		rev, err := s.Put(ctx, id, prev, []byte(data))
		if err == nil {
			return rev
		}
		if r, err := s.Get(ctx, id); err == nil && r.Revision != prev {
			if string(r.Data) != data {
				t.Fatalf("there is %q, which nobody has written over revision %d", r.Data, prev)
			}
			return r.Revision
		}
	}
	t.Fatalf("no write went through in %v", patience)
	return 0
}

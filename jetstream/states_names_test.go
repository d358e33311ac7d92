package jetstream_test

import (
	"fmt"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/statetest"
)

// A user who may only use direct gets has a conforming store, too.
func TestFencedStatesAreAStore(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	statetest.Run(t, func(t *testing.T) state.Store {
		js := jetstream.Gather(start(t))
		apply(t, js, jetstream.Options{Only: states})
		s := jetstream.NewStates(js, subject.Map{})
		s.Fence()
		return s
	})
}

// The open runs of an entity are found by their names; a run that has ended is read once,
// and again after its dead letter is retried.
func TestFencedOpenRuns(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	s.Fence()
	put := func(run string, prev uint64, status string) uint64 {
		return putRun(t, s, state.ID{Entity: "agent.x", Run: run}, prev, []byte(run+status), jetstream.Note{Status: aaif.RunStatus(status)})
	}
	open := func() (runs []string) {
		for r, err := range s.Open(ctx, "agent.x") {
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r.ID.Run)
		}
		return runs
	}
	ended := put("ended", 0, "failed")
	put("going", 0, "running")
	putRun(t, s, state.ID{Entity: "agent.x.y", Run: "other"}, 0, []byte("other"), jetstream.Note{})
	for range 2 {
		if got := open(); len(got) != 1 || got[0] != "going" {
			t.Fatalf("open are %q", got)
		}
	}
	for _, err := range s.Open(ctx, "agent.none") { // that it has none changes nothing for agent.x
		if err != nil {
			t.Fatal(err)
		}
	}
	gets, err := js.Conn().SubscribeSync("$JS.API.DIRECT.GET.KV_aee_state.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	open()
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := gets.Pending(); n != 2 { // its record, and its reply
		t.Errorf("%d messages were read, one run is open", n)
	}
	put("ended", ended, "paused") // retried, and parked
	if got := open(); len(got) != 2 {
		t.Errorf("open are %q", got)
	}
}

// A run that has ended may be deleted, and its task be submitted again: the new run is open,
// though it may have as many revisions as the one that is gone.
func TestFencedOpenRunsAfterADeletion(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	s.Fence()
	operator := jetstream.NewStates(js, subject.Map{})
	open := func() (runs []string) {
		for r, err := range s.Open(ctx, "agent.x") {
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r.ID.Run)
		}
		return runs
	}
	for name, marker := range map[string]bool{"with its marker": true, "after that has expired": false} {
		id := state.ID{Entity: "agent.x", Run: "again" + fmt.Sprint(len(name))}
		put := func(prev uint64, status aaif.RunStatus) uint64 {
			return putRun(t, s, id, prev, []byte(status), jetstream.Note{Status: status})
		}
		over := put(put(0, "running"), "failed")
		if got := open(); len(got) != 0 {
			t.Fatalf("%s: open are %q", name, got)
		}
		if err := operator.Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
		if !marker {
			stream, err := js.Stream(ctx, "KV_aee_state")
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Purge(ctx, natsjs.WithPurgeSubject("$KV.aee_state.agent.x."+id.Run)); err != nil {
				t.Fatal(err)
			}
		}
		if got := open(); len(got) != 0 {
			t.Fatalf("%s: open are %q", name, got)
		}
		over = put(0, "running")
		if !marker {
			over = put(over, "running")
		}
		if got := open(); len(got) != 1 || got[0] != id.Run {
			t.Errorf("%s: open are %q", name, got)
		}
		put(over, "completed")
	}
}

// Between two listings a run that has ended may be deleted, and a new run come to the same number of
// revisions: it is found some listings later.
func TestFencedOpenRunsWithAsManyRevisions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	s.Fence()
	id := state.ID{Entity: "agent.x", Run: "again"}
	put := func(prev uint64, status aaif.RunStatus) uint64 {
		return putRun(t, s, id, prev, []byte(status), jetstream.Note{Status: status})
	}
	open := func() (n int) {
		for _, err := range s.Open(ctx, "agent.x") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	for i := range 200 {
		putRun(t, s, state.ID{Entity: "agent.x", Run: fmt.Sprint("other", i)}, 0, []byte("{}"), jetstream.Note{Status: "completed"})
	}
	put(put(0, "running"), "failed")
	if n := open(); n != 0 {
		t.Fatalf("%d runs are open", n)
	}
	stream, err := js.Stream(ctx, "KV_aee_state")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx, natsjs.WithPurgeSubject("$KV.*.agent.x."+id.Run)); err != nil {
		t.Fatal(err)
	}
	put(put(0, "running"), "running")
	gets, err := js.Conn().SubscribeSync("$JS.API.DIRECT.GET.KV_aee_state.>")
	if err != nil {
		t.Fatal(err)
	}
	listings := 1
	for ; open() == 0; listings++ {
		if listings > 100 {
			t.Fatal("the new run is not found")
		}
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := gets.Pending(); n > 2*5*listings { // two of each run that is read
		t.Errorf("%d messages were read in %d listings", n, listings)
	}
}

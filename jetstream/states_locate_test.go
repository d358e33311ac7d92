package jetstream_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// asked returns how many requests on a subject the server got while f ran.
func asked(t *testing.T, nc *nats.Conn, subject string, f func()) int {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	f()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	n, _, _ := sub.Pending()
	return n
}

// A run is found by its id, or by its task's, without the names of the other runs. At
// 100,000 runs the names are most of what a command waits for.
func TestARunIsFoundWithoutTheOthers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	apply(t, js, jetstream.Options{})
	for _, key := range []string{"agent=2Ex", "agent=2Ey"} {
		entity, _ := subject.Unescape(key)
		if _, err := js.Publish(ctx, "$KV.aee_lanes."+key, []byte(entity)); err != nil {
			t.Fatal(err)
		}
	}
	both := []state.ID{{Entity: "agent.x", Run: state.RunID("agent.x", "task-1")}, {Entity: "agent.y", Run: state.RunID("agent.y", "task-1")}}
	own := state.ID{Entity: "agent.y", Run: state.RunID("agent.y", "task-2")}
	for _, id := range append(both, own) {
		end := putRun(t, s, id, 0, []byte("{}"), jetstream.Note{Status: "completed"})
		if _, err := s.Reply(ctx, id, end, jetstream.Reply{MsgID: id.Run, Data: []byte("{}")}, jetstream.Note{Status: "completed"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	replies := jetstream.NewReplies(js, subject.Map{})
	n := asked(t, js.Conn(), "$JS.API.STREAM.INFO.KV_aee_state", func() {
		for name, want := range map[string][]state.ID{"task-1": both, "task-2": {own}, own.Run: {own}, "task-3": nil} {
			got, err := s.Locate(ctx, name)
			slices.SortFunc(got, func(a, b state.ID) int {
				return len(a.Entity) - len(b.Entity) + slices.Compare([]byte(a.Entity), []byte(b.Entity))
			})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
		if got, err := replies.Find(ctx, "task-1"); err != nil || !slices.Equal(got, []string{"agent.x", "agent.y"}) {
			t.Errorf("replies of %v, %v", got, err)
		}
	})
	if n != 0 {
		t.Errorf("the names of all runs were read %d times", n)
	}
	// A lane of which a consumer alone is known.
	rare := state.ID{Entity: "agent.z", Run: state.RunID("agent.z", "task-3")}
	end := putRun(t, s, rare, 0, []byte("{}"), jetstream.Note{Status: "completed"})
	if _, err := s.Reply(ctx, rare, end, jetstream.Reply{MsgID: "m", Data: []byte("{}")}, jetstream.Note{Status: "completed"}, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := replies.Find(ctx, "task-3"); err != nil || !slices.Equal(got, []string{"agent.z"}) {
		t.Errorf("replies of %v, %v", got, err)
	}
}

// The first page of a list is read from the end of the stream: no consumer delivers the
// others, nor the same runs again if these are all.
func TestTheFirstPageReadsNoConsumer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	for _, run := range []string{"1", "2", "3"} {
		putRun(t, s, state.ID{Entity: "agent.x", Run: run}, 0, []byte("{}"), jetstream.Note{Status: "completed"})
	}
	n := asked(t, js.Conn(), "$JS.API.CONSUMER.CREATE.KV_aee_state.>", func() {
		for _, err := range s.Latest(ctx, "", nil) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	if n != 0 {
		t.Errorf("%d consumers", n)
	}
}

// The documents of the last minutes are read without those before, and without a consumer.
func TestRecentDocumentsAreReadWithoutTheOthers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	var middle time.Time
	for i := range 40 {
		id := state.ID{Entity: "agent.x", Run: fmt.Sprint("r", i)}
		rev := putRun(t, s, id, 0, []byte("{}"), jetstream.Note{Status: "running"})
		if i != 37 {
			continue
		}
		rec, err := s.Get(ctx, id)
		if err != nil || rec.Revision != rev {
			t.Fatal(rec, err)
		}
		middle = rec.Time
	}
	read := func(since time.Time) (ids []string) {
		for r, err := range s.Documents(ctx, since, "") {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.ID.Run)
		}
		return ids
	}
	for name, c := range map[string]struct {
		since     time.Time
		runs      int
		consumers int
	}{"all": {time.Time{}, 40, 1}, "the last": {middle, 3, 0}, "none": {time.Now().Add(time.Hour), 0, 0}} {
		n := asked(t, js.Conn(), "$JS.API.CONSUMER.CREATE.KV_aee_state.>", func() {
			if got := read(c.since); len(got) != c.runs || len(got) > 0 && got[0] != "r39" {
				t.Errorf("%s: %d runs, %q", name, len(got), got)
			}
		})
		if n != c.consumers {
			t.Errorf("%s: %d consumers", name, n)
		}
	}
}

// The runs that were written last are found at the end of the stream, by any condition.
func TestRecentRuns(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	m := &model{s: s, runs: map[state.ID]modelRun{}}
	old, twin, last := state.ID{Entity: "agent.x", Run: "old"}, state.ID{Entity: "agent.y", Run: "last"}, state.ID{Entity: "agent.x", Run: "last"}
	m.put(t, old, "running", true)
	m.bare(t, js, "agent.x", "before", 3600)
	m.put(t, twin, "running", true)
	m.bare(t, js, "agent.x", "between", 600)
	m.put(t, last, "running", true)
	named := func(run string) func(state.ID) bool { return func(id state.ID) bool { return id.Run == run } }
	for name, c := range map[string]struct {
		entity string
		match  func(state.ID) bool
		want   []state.ID
	}{
		"the later of two":    {"", named("last"), []state.ID{last}},
		"the one of an agent": {"agent.y", named("last"), []state.ID{twin}},
		"none lately":         {"", named("old"), nil},
		"none":                {"agent.none", named("last"), nil},
	} {
		if got, err := s.Recent(ctx, c.entity, c.match); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := s.Recent(ctx, "", func(id state.ID) bool { return true }); err != nil || len(got) != 512 {
		t.Errorf("all: %d, %v", len(got), err)
	}
}

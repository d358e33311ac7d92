package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// watchRun starts a watch of a run, whose reports arrive at the channel. It ends with the test, and
// must return nil then.
func watchRun(t *testing.T, s state.Store, id state.ID) <-chan state.Record {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan state.Record, 64), make(chan error, 1)
	go func() { ended <- jetstream.WatchRun(ctx, s, id, func(r state.Record) { heard <- r }) }()
	t.Cleanup(func() {
		cancel()
		if err := natstest.Within(t, "the end of the watch", ended); err != nil {
			t.Errorf("the watch ended with %v", err)
		}
	})
	return heard
}

// hears waits for a report of the data. Reports of earlier data may come before it.
func hears(t *testing.T, heard <-chan state.Record, want string) state.Record {
	t.Helper()
	for {
		if r := natstest.Within(t, "a report of "+want, heard); string(r.Data) == want {
			return r
		}
	}
}

func TestWatchRun(t *testing.T) {
	t.Parallel()
	_, states := openStates(t)
	_, fenced := openStates(t)
	fenced.Fence()
	for name, s := range map[string]state.Store{"in memory": new(state.Mem), "in JetStream": states, "of a fenced user": fenced} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			put := func(id state.ID, prev uint64, data string) uint64 {
				t.Helper()
				rev, err := s.Put(ctx, id, prev, []byte(data))
				if err != nil {
					t.Fatal(err)
				}
				return rev
			}
			id := state.ID{Entity: "agent.x", Run: "r"}
			put(state.ID{Entity: "agent.x", Run: "r2"}, 0, "of another run")
			put(state.ID{Entity: "agent.x.r", Run: "x"}, 0, "of another entity")
			heard := watchRun(t, s, id) // of a run that does not exist yet
			first := put(id, 0, "1")
			next := func(what, data string, revision uint64) {
				t.Helper()
				if r := natstest.Within(t, what, heard); r.ID != id || string(r.Data) != data || r.Revision != revision {
					t.Errorf("%s is reported as %q at revision %d of %v, want %q at %d", what, r.Data, r.Revision, r.ID, data, revision)
				}
			}
			next("the first record", "1", first)
			if r := natstest.Within(t, "what is there", watchRun(t, s, id)); string(r.Data) != "1" {
				t.Errorf("a second watch begins with %q", r.Data)
			}
			second := put(id, first, "2")
			next("a change", "2", second)
			if err := s.Delete(ctx, id); err != nil {
				t.Fatal(err)
			}
			if r := natstest.Within(t, "the deletion", heard); r.ID != id || r.Data != nil || r.Revision <= second || r.Time.IsZero() {
				t.Errorf("the deletion is reported as %+v", r)
			}
			next("the next run of the id", "3", put(id, 0, "3")) // the deletion is not repeated
		})
	}
}

// What is written while fn is busy may be skipped, but not the newest.
func TestWatchRunOfABusyRunReportsTheNewest(t *testing.T) {
	t.Parallel()
	_, s := openStates(t)
	id := state.ID{Entity: "agent.x", Run: "r"}
	rev := putRun(t, s, id, 0, []byte("0"), jetstream.Note{})
	ctx, stop := context.WithCancel(testContext(t))
	defer stop()
	var seen []string
	if err := jetstream.WatchRun(ctx, s, id, func(r state.Record) {
		if seen = append(seen, string(r.Data)); len(seen) == 1 {
			for i := range 100 {
				rev = putRun(t, s, id, rev, []byte(fmt.Sprint(i+1)), jetstream.Note{})
			}
			return
		}
		stop()
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"0", "100"}; !slices.Equal(seen, want) {
		t.Errorf("reported are %q, want %q", seen, want)
	}
}

func TestWatchRunOutlivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{Only: states})
	s, id := jetstream.NewStates(js, subject.Map{}), state.ID{Entity: "agent.x", Run: "r"}
	rev := putRun(t, s, id, 0, []byte("before"), jetstream.Note{})
	heard := watchRun(t, s, id)
	hears(t, heard, "before")
	srv = natstest.Restart(t, srv)
	putRun(t, jetstream.NewStates(connect(t, srv), subject.Map{}), id, rev, []byte("after"), jetstream.Note{})
	hears(t, heard, "after")
}

// A document that is an object is read once, not at each look.
func TestWatchRunReadsALargeDocumentOnce(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	id := state.ID{Entity: "agent.x", Run: "r"}
	large := strings.Repeat("x", jetstream.MaxInline+1)
	rev := putRun(t, s, id, 0, []byte(large), jetstream.Note{})
	looks := requestsTo(t, js, "$JS.API.DIRECT.GET.KV_aee_state.$KV.aee_state.>", "")
	chunks := requestsTo(t, js, "$JS.API.DIRECT.GET.OBJ_aee_state_objects.>", "")
	heard := watchRun(t, s, id)
	hears(t, heard, large)
	threeLooks := func() {
		t.Helper()
		began := looks.Load()
		waitFor(t, "three looks", func() bool { return looks.Load() >= began+3 })
	}
	threeLooks()
	once := chunks.Load()
	if once == 0 {
		t.Fatal("the document is no object")
	}
	if threeLooks(); chunks.Load() != once {
		t.Errorf("the document was read again: %d requests, then %d", once, chunks.Load())
	}
	putRun(t, s, id, rev, []byte(large+"2"), jetstream.Note{})
	hears(t, heard, large+"2")
}

func TestWatchRunEnds(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	id := state.ID{Entity: "agent.x", Run: "r"}
	none := func(r state.Record) { t.Errorf("a report of %+v", r) }
	for _, bad := range []state.ID{{}, {Entity: "agent.x"}, {Run: "r"}, {Entity: "agent.*", Run: "r"}} {
		if err := jetstream.WatchRun(testContext(t), s, bad, none); err == nil {
			t.Errorf("%+v is watched", bad)
		}
	}
	over, end := context.WithCancel(t.Context())
	end()
	if err := jetstream.WatchRun(over, s, id, none); err != nil {
		t.Errorf("after the end: %v", err)
	}
	putRun(t, s, id, 0, []byte("x"), jetstream.Note{})
	err := jetstream.WatchRun(testContext(t), s, id, func(state.Record) { js.Conn().Close() })
	if !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("after the connection was closed: %v", err)
	}
}

// A run has a lower revision than before: its bucket was restored from an older copy while the
// watch's connection was lost.
func TestWatchRunReportsARunOfABucketThatIsRestored(t *testing.T) {
	t.Parallel()
	m, id := subject.Map{}, state.ID{Entity: "agent.x", Run: "r"}
	js, back := restoring(t, jetstream.Options{Only: states}, func(js natsjs.JetStream) {
		putRun(t, jetstream.NewStates(js, m), id, 0, []byte("kept"), jetstream.Note{})
	})
	s, rev := jetstream.NewStates(js, m), uint64(1)
	for range 4 {
		rev = putRun(t, s, id, rev, []byte("lost"), jetstream.Note{})
	}
	heard := watchRun(t, s, id)
	hears(t, heard, "lost")
	back()
	hears(t, heard, "kept")
	putRun(t, s, id, 1, []byte("new"), jetstream.Note{})
	hears(t, heard, "new")
}

// The bucket is deleted and made anew under a connection that holds. The new record may have the
// sequence of the old one.
func TestWatchRunReportsTheRunOfABucketThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, lost := range []int{1, 3} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			t.Parallel()
			js, s := openStates(t)
			id, rev := state.ID{Entity: "agent.x", Run: "r"}, uint64(0)
			for range lost {
				rev = putRun(t, s, id, rev, []byte("lost"), jetstream.Note{})
			}
			heard := watchRun(t, s, id)
			hears(t, heard, "lost")
			tries := requestsTo(t, js, "$JS.API.DIRECT.GET.KV_aee_state.>", "")
			if err := js.DeleteStream(testContext(t), "KV_aee_state"); err != nil {
				t.Fatal(err)
			}
			before := tries.Load()
			waitFor(t, "a look at no bucket", func() bool { return tries.Load() > before })
			apply(t, js, jetstream.Options{Only: states})
			putRun(t, s, id, 0, []byte("new"), jetstream.Note{})
			hears(t, heard, "new")
		})
	}
}

// behind is a store whose reads are answered by replicas that lag behind: one answer after another.
type behind struct {
	state.Mem
	answers []uint64 // revisions; 0: the run does not exist
}

func (l *behind) Get(_ context.Context, id state.ID) (state.Record, error) {
	now := l.answers[0]
	if len(l.answers) > 1 {
		l.answers = l.answers[1:]
	}
	if now == 0 {
		return state.Record{}, state.ErrNotFound
	}
	return state.Record{ID: id, Data: []byte("x"), Revision: now, Time: time.Unix(int64(now), 0)}, nil
}

// A replica that lags behind takes no report back, and deletes no run.
func TestWatchRunIsNotDeceivedByAReplicaThatLagsBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &behind{answers: []uint64{5, 0, 5, 4, 4, 4, 5, 0, 0, 0, 5, 0, 6, 0, 0, 0, 0}}
		var seen []string
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := jetstream.WatchRun(ctx, l, state.ID{Entity: "agent.x", Run: "r"}, func(r state.Record) {
			seen = append(seen, fmt.Sprintf("%d%s", r.Revision, r.Data))
		}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"5x", "6x", "7"}; !slices.Equal(seen, want) {
			t.Errorf("reported are %q, want %q", seen, want)
		}
	})
}

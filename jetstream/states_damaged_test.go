package jetstream_test

import (
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// A worker may write any record below its own entity, and a part of a document may be lost. The
// runs of others are listed nevertheless, and the damaged one by what is left of it.
func TestADamagedRecordEndsNoListing(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	want := []string{"lost", "other", "another's", "covered", "first", "last"}
	putRun(t, s, state.ID{Entity: "agent.a", Run: "first"}, 0, []byte(`{}`), jetstream.Note{Status: "running"})
	putRun(t, s, state.ID{Entity: "agent.b", Run: "lost"}, 0, make([]byte, 300<<10), jetstream.Note{Status: "running"})
	objects, err := js.Stream(ctx, "OBJ_aee_state_objects")
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "$O.aee_state_objects.C.agent.b.other.TOKEN.0", []byte("abc")); err != nil {
		t.Fatal(err)
	}
	for run, object := range map[string]string{"other": "sha-256=wrong 3 agent.b.other/TOKEN", "another's": "sha-256=wrong 3 agent.c.other/TOKEN"} {
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "$KV.aee_state.agent.b." + subject.Escape(run), Data: []byte(`{}`), Header: nats.Header{
			natsjs.ExpectedStreamHeader: {"KV_aee_state"}, natsjs.ExpectedLastSubjSeqHeader: {"0"},
			jetstream.HeaderStatus: {"running"}, jetstream.HeaderObject: {object},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	putRun(t, s, state.ID{Entity: "agent.c", Run: "last"}, 0, []byte(`{}`), jetstream.Note{Status: "running"})
	fenced := jetstream.NewStates(js, subject.Map{})
	fenced.Fence()
	covered := state.ID{Entity: "agent.b", Run: "covered"}
	putRun(t, s, covered, 0, []byte(`{}`), jetstream.Note{Status: "running"})
	cover := func() {
		t.Helper()
		if err := js.Conn().PublishRequest("$JS.API.STREAM.INFO.KV_aee_state", "$KV.aee_state.agent.b.covered", nil); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the answer is stored", func() bool {
			_, err := fenced.Get(ctx, covered)
			return errors.Is(err, jetstream.ErrUnavailable)
		})
	}
	slices.Sort(want)
	for by, s := range map[string]*jetstream.States{"a fenced worker": fenced, "an operator": s} {
		cover()
		var all sync.WaitGroup
		for name, list := range map[string]iter.Seq2[state.Record, error]{
			"List": s.List(ctx, ""), "Open": s.Open(ctx, ""), "Latest": s.Latest(ctx, "", nil), "Documents": s.Documents(ctx, time.Time{}, ""),
		} {
			all.Go(func() {
				var got []string
				for r, err := range list {
					if err != nil {
						t.Errorf("%s by %s: after %q: %v", name, by, got, err)
						return
					}
					if got = append(got, r.ID.Run); r.Revision == 0 {
						t.Errorf("%s by %s: %s has no revision", name, by, r.ID.Run)
					}
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("%s by %s: %q", name, by, got)
				}
			})
		}
		all.Wait()
	}
	for _, run := range []string{"lost", "other", "another's"} {
		if r, err := s.Get(ctx, state.ID{Entity: "agent.b", Run: run}); err == nil || r.Data != nil {
			t.Errorf("%s: %+v", run, r)
		}
	}
}

package jetstream_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// A message that no worker wrote and that covers a record is replaced by the record, by
// an operator or by a worker that may read the run's revisions; other readers do not take
// it for the record.
func TestARecordThatIsCoveredIsRestored(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	fenced := jetstream.NewStates(js, subject.Map{})
	fenced.Fence()
	kept, none := state.ID{Entity: "agent.x", Run: "kept"}, state.ID{Entity: "agent.x", Run: "none"}
	putRun(t, s, kept, 0, []byte(`{"n":1}`), jetstream.Note{})
	putRun(t, s, kept, 1, []byte(`{"n":2}`), jetstream.Note{})
	cover := func(id state.ID) { // by a request with this reply subject
		t.Helper()
		if err := js.Conn().PublishRequest("$JS.API.STREAM.INFO.KV_aee_state", "$KV.aee_state.agent.x."+id.Run, nil); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the answer is stored", func() bool {
			_, err := fenced.Get(ctx, id)
			return errors.Is(err, jetstream.ErrUnavailable)
		})
	}
	cover(kept)
	cover(none)
	if n, err := s.Restore(ctx); n != 2 || err != nil {
		t.Errorf("restored %d, %v", n, err)
	}
	if rec, err := fenced.Get(ctx, kept); err != nil || string(rec.Data) != `{"n":2}` {
		t.Errorf("%s, %v", rec.Data, err)
	}
	if _, err := fenced.Get(ctx, none); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("what was never there: %v", err)
	}
	if n, err := s.Restore(ctx); n != 0 || err != nil {
		t.Errorf("restored %d more, %v", n, err)
	}
	cover(kept)
	if rec, err := s.Get(ctx, kept); err != nil || string(rec.Data) != `{"n":2}` {
		t.Errorf("%s, %v", rec.Data, err)
	}
	if h, err := s.History(ctx, kept); err != nil || len(h) < 2 {
		t.Errorf("history %d, %v", len(h), err)
	}
	if _, err := fenced.Restore(ctx); !errors.Is(err, jetstream.ErrDenied) {
		t.Errorf("by a fenced worker: %v", err)
	}
}

// A record that cannot be restored does not keep the others covered.
func TestARecordThatCannotBeRestoredDoesNotStopTheRestoring(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	large, small := state.ID{Entity: "agent.x", Run: "large"}, state.ID{Entity: "agent.x", Run: "small"}
	putRun(t, s, large, 0, make([]byte, 8<<10), jetstream.Note{})
	putRun(t, s, small, 0, []byte(`{"n":1}`), jetstream.Note{})
	for _, id := range []state.ID{large, small} {
		if err := js.Conn().PublishRequest("$JS.API.STREAM.INFO.KV_aee_state", "$KV.aee_state.agent.x."+id.Run, nil); err != nil {
			t.Fatal(err)
		}
	}
	fenced := jetstream.NewStates(js, subject.Map{})
	fenced.Fence()
	waitFor(t, "both are covered", func() bool {
		_, err1 := fenced.Get(ctx, large)
		_, err2 := fenced.Get(ctx, small)
		return errors.Is(err1, jetstream.ErrUnavailable) && errors.Is(err2, jetstream.ErrUnavailable)
	})
	stream, err := js.Stream(ctx, "KV_aee_state")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgSize = 4 << 10 // the large record cannot be written again
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	n, err := s.Restore(ctx)
	if n != 1 || !errors.Is(err, jetstream.ErrUnavailable) || !strings.Contains(err.Error(), "run large of agent.x") {
		t.Errorf("restored %d, %v", n, err)
	}
	if rec, err := fenced.Get(ctx, small); err != nil || string(rec.Data) != `{"n":1}` {
		t.Errorf("%s, %v", rec.Data, err)
	}
}

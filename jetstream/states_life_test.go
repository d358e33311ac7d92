package jetstream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
)

// A record with a life of its own goes by itself, and a later one without may stay.
func TestARecordIsKeptForItsLife(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js := start(t)
	apply(t, js, jetstream.Options{})
	s := jetstream.NewHandoffs(js, subject.Map{})
	gone, stays := state.ID{Entity: "service.handoff", Run: "gone"}, state.ID{Entity: "service.handoff", Run: "stays"}
	for _, id := range []state.ID{gone, stays} {
		if _, err := s.PutFor(ctx, id, 0, []byte("{}"), time.Second); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := s.Get(ctx, stays)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, stays, rec.Revision, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, err := s.Get(ctx, gone); errors.Is(err, state.ErrNotFound) {
			break
		} else if err != nil || time.Now().After(deadline) {
			t.Fatalf("it is still there: %v", err)
		}
		tick := time.NewTimer(20 * time.Millisecond)
		<-tick.C
	}
	if _, err := s.Get(ctx, stays); err != nil {
		t.Errorf("the one that was written again: %v", err)
	}
	if _, err := s.PutFor(ctx, gone, 0, []byte("{}"), time.Hour); err != nil {
		t.Errorf("anew: %v", err)
	}
}

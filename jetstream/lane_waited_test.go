package jetstream

import (
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A worker that may not read the queue tells how long its oldest task has waited from
// the numbers of its consumer.
func TestHowLongMessagesHaveWaited(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var w waited
	for i, look := range []struct {
		delivered, pending uint64
		want               int // the look since when one has waited; -1: none waits
	}{
		{0, 3, 0},
		{1, 2, 0},
		{2, 5, 0},  // one of the first three is left
		{3, 4, 2},  // none of those that were there at the first two looks is; of those of the third some are
		{7, 1, -2}, // all that were there before are gone; the one there is came since
		{8, 0, -1},
		{8, 2, -2},
		{0, 4, -2}, // another consumer
	} {
		now := start.Add(time.Duration(i) * time.Second)
		got := w.since(natsjs.ConsumerInfo{TimeStamp: now, Delivered: natsjs.SequenceInfo{Consumer: look.delivered}, NumPending: look.pending})
		want := start.Add(time.Duration(look.want) * time.Second)
		switch look.want {
		case -1:
			want = time.Time{}
		case -2:
			want = now
		}
		if !got.Equal(want) {
			t.Errorf("look %d: since %v, want %v", i, got, want)
		}
	}
	w = waited{}
	for i := range 10_000 {
		got := w.since(natsjs.ConsumerInfo{TimeStamp: start.Add(time.Duration(i) * time.Second), NumPending: 1})
		if !got.Equal(start) || len(w.looks) > waitedLooks {
			t.Fatalf("look %d: since %v, %d remembered", i, got, len(w.looks))
		}
	}
}

package waited

import (
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A worker that may not read the queue derives from the numbers of its consumer how long
// its oldest task has been waiting.
func TestHowLongMessagesHaveWaited(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var w Looks
	for i, look := range []struct {
		delivered, pending uint64
		want               int // the look since which one has been waiting; -1: none waits
	}{
		{0, 3, 0},
		{1, 2, 0},
		{2, 5, 0},  // one of the first three is left
		{3, 4, 2},  // those of the first two looks are all delivered; some of the third still wait
		{7, 1, -2}, // all earlier ones are delivered; the waiting one is new
		{8, 0, -1},
		{8, 2, -2},
		{0, 4, -2}, // the consumer was recreated
	} {
		now := start.Add(time.Duration(i) * time.Second)
		got := w.Since(natsjs.ConsumerInfo{TimeStamp: now, Delivered: natsjs.SequenceInfo{Consumer: look.delivered}, NumPending: look.pending})
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
	w = Looks{}
	for i := range 10_000 {
		got := w.Since(natsjs.ConsumerInfo{TimeStamp: start.Add(time.Duration(i) * time.Second), NumPending: 1})
		if !got.Equal(start) || len(w.looks) > most {
			t.Fatalf("look %d: since %v, %d remembered", i, got, len(w.looks))
		}
	}
}

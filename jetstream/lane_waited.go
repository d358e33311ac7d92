package jetstream

import (
	"slices"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// waited tells from a consumer's numbers for how long messages have waited, for
// workers that may not read when a message was stored. It remembers how many waited at
// earlier looks: as long as fewer have been handed out since, some of them still wait.
type waited struct{ looks []waitedLook }

type waitedLook struct {
	at        time.Time // by the server's clock
	delivered uint64    // messages that were handed out until then
	pending   uint64    // messages that waited then
}

// waitedLooks bounds how many looks are remembered. Beyond it every other one is
// forgotten.
const waitedLooks = 64

// since returns the time of the first look since when some message has waited; zero
// where none waits. A message that was handed out again counts as one more, so the
// time may be too late.
func (w *waited) since(info natsjs.ConsumerInfo) time.Time {
	now := waitedLook{info.TimeStamp, info.Delivered.Consumer, info.NumPending}
	w.looks = slices.DeleteFunc(w.looks, func(l waitedLook) bool {
		return now.delivered < l.delivered || now.delivered-l.delivered >= l.pending
	})
	if now.pending == 0 {
		w.looks = nil
		return time.Time{}
	}
	if w.looks = append(w.looks, now); len(w.looks) > waitedLooks {
		kept := w.looks[:0]
		for i, l := range w.looks {
			if i%2 == 0 {
				kept = append(kept, l)
			}
		}
		w.looks = kept
	}
	return w.looks[0].at
}

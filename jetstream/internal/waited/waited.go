package waited

import (
	"slices"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Looks derive from a consumer's counters how long messages have been waiting, for
// workers that may not read when a message was stored. They remember how many messages
// waited at earlier looks: as long as fewer have been delivered since, some of them still
// wait.
type Looks struct{ looks []look }

type look struct {
	at        time.Time // by the server's clock
	delivered uint64    // messages that had been delivered
	pending   uint64    // messages that were waiting
}

// most is how many looks are kept. Beyond it every other one is dropped.
const most = 64

// Since returns the time of the earliest look at which a message that still waits was waiting;
// zero if none waits. A redelivered message counts as another delivery, so the time may be too
// late.
func (w *Looks) Since(info natsjs.ConsumerInfo) time.Time {
	now := look{info.TimeStamp, info.Delivered.Consumer, info.NumPending}
	w.looks = slices.DeleteFunc(w.looks, func(l look) bool {
		return now.delivered < l.delivered || now.delivered-l.delivered >= l.pending
	})
	if now.pending == 0 {
		w.looks = nil
		return time.Time{}
	}
	if w.looks = append(w.looks, now); len(w.looks) > most {
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

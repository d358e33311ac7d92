package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/clock"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Clock gives the time of the server that leads [StreamWork], whose clock stamps stored
// messages. Deadlines that count from a stored time are measured by it, so an error of
// the worker's own clock does not matter. It may be used by many goroutines at once.
//
// Now(ctx) returns the server's time. It asks the server the first time, and when the last
// reading is older than 10 s, or from before the machine was suspended. If no answer comes, it
// uses the last reading for up to 10 minutes, unless the machine was suspended; without one it
// fails. Offset(ctx) returns how far the server's clock is ahead of
// this machine's, and the bound of the error.
type Clock = clock.Clock

// ClockStood reports whether the machine's monotonic clock stood still between two times of
// time.Now by more than a second, because the machine was suspended, or whether its clock was set.
func ClockStood(since, now time.Time) bool { return clock.Stood(since, now) }

// NewClock returns the clock of m's mesh. It does no I/O.
func NewClock(js natsjs.JetStream, m subject.Map) *Clock {
	name := StreamWork + m.Suffix()
	return clock.New(func(ctx context.Context) (time.Time, error) {
		var answer struct {
			Time time.Time `json:"ts"`
		}
		if err := api.Request(ctx, js, "STREAM.INFO."+name, nil, &answer); err != nil {
			return time.Time{}, api.Explain(js.Conn(), err, "ask the server's time")
		}
		if answer.Time.IsZero() {
			return time.Time{}, fmt.Errorf("ask the server's time: %s has none: %w", name, ErrUnavailable)
		}
		return answer.Time, nil
	}, time.Now)
}

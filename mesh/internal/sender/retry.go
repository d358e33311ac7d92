package sender

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
)

// Retrying calls send, and again up to retries times while its error says that the task was
// not begun. told, if not nil, is called before each retry.
func Retrying(ctx context.Context, retries int, told func(attempt int, wait time.Duration, why *envelope.Error), send func(attempt int) error) error {
	for attempt := 0; ; attempt++ {
		err := send(attempt)
		if err == nil {
			return nil
		}
		problem, wait := WorthRetrying(err, attempt)
		if problem == nil || attempt >= retries {
			return err
		}
		if told != nil {
			told(attempt+1, wait, problem)
		}
		if !pause.For(ctx, wait) {
			return err // the answer says more than "deadline exceeded"
		}
	}
}

// maxPause bounds the backoff_ms that is waited for. A peer may ask for a long pause, and the caller's
// deadline ends it; the bound only keeps the arithmetic from overflowing.
const maxPause = 24 * time.Hour

// WorthRetrying returns the error if it says that the task was not begun and a retry may
// succeed, else nil. It also returns how long to wait: the agent's backoff_ms, at
// most a day, or an exponential backoff if that is longer, with jitter of half of it.
func WorthRetrying(err error, attempt int) (*envelope.Error, time.Duration) {
	var e *envelope.Error
	if !errors.As(err, &e) {
		return nil, 0
	}
	switch e.Code {
	case envelope.CodeBusy, envelope.CodeRateLimited, envelope.CodeDraining:
	case envelope.CodeUnavailable:
		if !e.SaysNotBegun() {
			return nil, 0
		}
	case envelope.CodeNoResponders:
		if e.FromPeer() {
			return nil, 0 // an agent answered, so the error is about another service that the agent called
		}
	default:
		return nil, 0
	}
	wait := max(min(e.Backoff(), maxPause), 50*time.Millisecond<<min(attempt, 6))
	return e, wait/2 + rand.N(wait)
}

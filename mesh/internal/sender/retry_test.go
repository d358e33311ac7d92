package sender

import (
	"math"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// A peer's backoff_ms is waited for, with jitter, and neither overflows nor is longer than a day.
func TestThePauseBeforeARetryIsBounded(t *testing.T) {
	for _, c := range []struct {
		ms       int64
		min, max time.Duration
	}{
		{0, 25 * time.Millisecond, 75 * time.Millisecond},
		{60_000, 30 * time.Second, 90 * time.Second},
		{3_600_000, 30 * time.Minute, 90 * time.Minute},
		{math.MaxInt64 / 1_000_000, maxPause / 2, maxPause * 3 / 2},
		{math.MaxInt64, time.Nanosecond, maxPause * 3 / 2},
		{-1, 25 * time.Millisecond, 75 * time.Millisecond},
	} {
		for range 100 {
			problem, wait := WorthRetrying(&envelope.Error{Code: envelope.CodeBusy, BackoffMS: c.ms}, 0)
			if problem == nil || wait < c.min || wait > c.max {
				t.Fatalf("backoff_ms %d: %v, want %v to %v", c.ms, wait, c.min, c.max)
			}
		}
	}
}

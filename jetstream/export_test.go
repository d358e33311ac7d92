package jetstream

import (
	"context"
	"time"
)

// NewClockOf is a clock that reads the server's time by read, on a machine
// whose own clock is local.
func NewClockOf(read func(context.Context) (time.Time, error), local func() time.Time) *Clock {
	return &Clock{read: read, local: local}
}

// SetScheduled has q believe, for a second, that so many bytes wait.
func SetScheduled(q *Queue, n uint64) { q.scheduled, q.looked = n, time.Now() }

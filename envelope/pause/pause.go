package pause

import (
	"context"
	"time"
)

// For waits for d. It returns false if ctx ends before that, or has ended already.
func For(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Wake signals on c that there is something to do, unless a signal waits in it already. c is a
// channel with a buffer of one.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

package clock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A Clock tells the time of a server. It may be used by many goroutines at once.
type Clock struct {
	read  func(context.Context) (time.Time, error) // the server's time
	local func() time.Time                         // with a monotonic reading

	mu     sync.Mutex
	server time.Time // the server's time at local time base
	base   time.Time
	bound  time.Duration // the largest possible error of server
	next   time.Time     // when to ask again
	asking chan struct{} // closed when the request under way has ended
}

const (
	clockFresh    = 10 * time.Second // a reading is used this long: clocks drift apart by some 0.1 ms meanwhile
	clockStale    = 10 * time.Minute // a reading is used this long if no other can be had
	clockPatience = 2 * time.Second  // timeout of one request
)

// Stood reports whether the machine's monotonic clock stood still between two local times by more
// than a second, because the machine was suspended, or whether its clock was set.
func Stood(since, now time.Time) bool {
	return (now.Round(0).Sub(since.Round(0)) - now.Sub(since)).Abs() > time.Second
}

// New returns a clock that reads the server's time by read, and the machine's by local.
func New(read func(context.Context) (time.Time, error), local func() time.Time) *Clock {
	return &Clock{read: read, local: local}
}

// Now returns the server's time. It asks the server the first time, and when the last
// reading is older than 10 s, or from before the machine was suspended. If no answer comes, it
// uses the last reading for up to 10 minutes, unless the machine was suspended; without one it fails.
func (c *Clock) Now(ctx context.Context) (time.Time, error) {
	now, _, err := c.now(ctx)
	return now, err
}

// Offset returns how far the server's clock is ahead of this machine's, and the bound of
// the error: half the round trip.
func (c *Clock) Offset(ctx context.Context) (offset, bound time.Duration, err error) {
	now, bound, err := c.now(ctx)
	if err != nil {
		return 0, 0, err
	}
	// Round strips the monotonic reading, which leaves the machine's wall clock.
	return now.Sub(c.local().Round(0)), bound, nil
}

func (c *Clock) now(ctx context.Context) (time.Time, time.Duration, error) {
	for {
		c.mu.Lock()
		local := c.local()
		age := local.Sub(c.base)
		known := !c.base.IsZero() && age < clockStale && !Stood(c.base, local)
		now, bound, asking := c.server.Add(age), c.bound, c.asking
		if known && (local.Before(c.next) || asking != nil) {
			c.mu.Unlock()
			return now, bound, nil
		}
		if asking == nil {
			c.asking = make(chan struct{})
			c.mu.Unlock()
			if err := c.ask(ctx); err != nil && !known {
				return time.Time{}, 0, err
			}
			continue
		}
		c.mu.Unlock()
		select {
		case <-asking: // by another caller
		case <-ctx.Done():
			return time.Time{}, 0, fmt.Errorf("ask the server's time: %w", ctx.Err())
		}
	}
}

// ask reads the server's time for all callers.
func (c *Clock) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	before := c.local()
	server, err := c.read(ctx)
	after := c.local()

	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		// The server read its clock at some time in between.
		half := after.Sub(before) / 2
		c.server, c.base, c.bound = server, before.Add(half), half
	}
	c.next = after.Add(clockFresh)
	close(c.asking)
	c.asking = nil
	return err
}

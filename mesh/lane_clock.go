package mesh

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
)

// serverClock estimates the server's time from occasional readings. The lanes of a node
// share it.
type serverClock struct {
	last     atomic.Pointer[reading]
	first    chan struct{} // has an element while a lane begins
	patience time.Time     // until when lanes wait for the first reading
}

type reading struct {
	server, local time.Time
	bound         time.Duration // by how much server may be wrong
}

// stood reports whether this machine was suspended since the reading, or its clock was set.
func (r *reading) stood() bool { return jetstream.ClockStood(r.local, time.Now()) }

// A clockSource says by how much the server's clock is ahead of this machine's.
type clockSource interface {
	Offset(ctx context.Context) (offset, bound time.Duration, err error)
}

// tend reads the server's clock every ten seconds, every second until it has been read, and
// within a second after this machine was suspended.
func (c *serverClock) tend(ctx context.Context, source clockSource) {
	for pause.For(ctx, time.Second) {
		c.readOlder(ctx, source, 10*time.Second)
	}
}

// begin reads the server's clock, unless it was read in the last 20 seconds. Where it was never
// read, the first lanes of a node try again for three seconds: the deadline of a task that is
// drawn without it is by this machine's clock. Later lanes do not wait for it.
func (c *serverClock) begin(ctx context.Context, source clockSource) {
	select {
	case c.first <- struct{}{}:
		defer func() { <-c.first }()
	case <-ctx.Done():
		return
	}
	if c.patience.IsZero() {
		c.patience = time.Now().Add(3 * time.Second)
	}
	if c.last.Load() != nil {
		c.readOlder(ctx, source, 20*time.Second)
	}
	waiting, cancel := context.WithDeadline(ctx, c.patience)
	defer cancel()
	for wait := time.Duration(0); c.last.Load() == nil && pause.For(waiting, wait); wait = 250 * time.Millisecond {
		c.read(waiting, source)
	}
}

// readOlder reads the server's clock, unless it was read in the last while and this machine was not
// suspended since.
func (c *serverClock) readOlder(ctx context.Context, source clockSource, while time.Duration) {
	if last := c.last.Load(); last == nil || time.Since(last.local) >= while || last.stood() {
		c.read(ctx, source)
	}
}

// read takes a new reading, unless the old one is more precise: a slow answer gives a
// wide bound. After a suspension the old one lags.
func (c *serverClock) read(ctx context.Context, source clockSource) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	offset, bound, err := source.Offset(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	if last := c.last.Load(); last == nil || last.stood() || bound <= last.bound+now.Sub(last.local)/1000 {
		c.last.Store(&reading{now.Round(0).Add(offset), now, bound})
	}
}

// now returns the server's time, or this machine's if the server's was never read.
func (c *serverClock) now() time.Time {
	if last := c.last.Load(); last != nil {
		return last.server.Add(time.Since(last.local))
	}
	return time.Now()
}

// at converts a time by this machine's clock to the server's.
func (c *serverClock) at(local time.Time) time.Time { return c.now().Add(-time.Since(local)) }

// local converts a time by the server's clock to this machine's.
func (c *serverClock) local(t time.Time) time.Time { return time.Now().Add(t.Sub(c.now())) }

// past converts the server's time of a past event to this machine's. Its result is never
// later than now, also if the estimate of the server's clock is wrong.
func (c *serverClock) past(t time.Time) time.Time { return earlier(c.local(t), time.Now()) }

// earlier returns the earlier of two times; a zero a is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

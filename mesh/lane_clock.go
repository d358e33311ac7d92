package mesh

import (
	"context"
	"sync/atomic"
	"time"
)

// serverClock estimates the server's time from occasional readings.
type serverClock struct {
	last atomic.Pointer[reading]
}

type reading struct {
	server, local time.Time
	bound         time.Duration // by how much server may be wrong
}

// tend reads the server's clock now, and returns a function that reads it every ten
// seconds.
func (c *serverClock) tend(l *lane) func() {
	c.read(l)
	return func() {
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.read(l)
			case <-l.ctx.Done():
				return
			}
		}
	}
}

// read takes a new reading, unless the old one is more precise: a slow answer gives a
// wide bound.
func (c *serverClock) read(l *lane) {
	ctx, cancel := context.WithTimeout(l.ctx, 2*time.Second)
	defer cancel()
	offset, bound, err := l.cfg.Clock.Offset(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	if last := c.last.Load(); last == nil || bound <= last.bound+now.Sub(last.local)/1000 {
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

// past is local for an event at the server that has happened: its result is never
// later than now, however imprecise the clock is.
func (c *serverClock) past(t time.Time) time.Time { return earlier(c.local(t), time.Now()) }

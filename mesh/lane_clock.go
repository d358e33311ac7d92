package mesh

import (
	"context"
	"sync/atomic"
	"time"
)

// serverClock tells the server's time without asking each time.
type serverClock struct {
	last atomic.Pointer[reading]
}

type reading struct {
	server, local time.Time
	bound         time.Duration // by how much server may be wrong
}

// tend reads the server's clock now, and from time to time.
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

// read takes a new reading, unless the old one is better: an answer that was
// long on its way tells little.
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

// now is the server's time; where it was never told, this machine's.
func (c *serverClock) now() time.Time {
	if last := c.last.Load(); last != nil {
		return last.server.Add(time.Since(last.local))
	}
	return time.Now()
}

// at is what the server's clock showed at a time of this machine's.
func (c *serverClock) at(local time.Time) time.Time { return c.now().Add(-time.Since(local)) }

// local is when the server's clock shows t, by this machine's clock.
func (c *serverClock) local(t time.Time) time.Time { return time.Now().Add(t.Sub(c.now())) }

// past is local for what the server has done: however little its clock is known,
// that was not later than now.
func (c *serverClock) past(t time.Time) time.Time { return earlier(c.local(t), time.Now()) }

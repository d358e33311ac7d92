package mesh

import (
	"sync/atomic"
	"time"
)

// pace remembers how long tasks take of late.
type pace struct{ mean atomic.Int64 } // nanoseconds; 0: nothing known

// shortTask is how long a task takes that may be drawn ahead of its place:
// waiting for the next one would cost more than it does.
const shortTask = 10 * time.Millisecond

func (p *pace) add(d time.Duration) {
	mean := p.mean.Load()
	if mean == 0 {
		mean = int64(d)
	}
	p.mean.Store(max(1, mean+(int64(d)-mean)/8))
}

func (p *pace) short() bool {
	mean := p.mean.Load()
	return mean > 0 && mean < int64(shortTask)
}

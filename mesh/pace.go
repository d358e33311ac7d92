package mesh

import (
	"sync/atomic"
	"time"
)

// pace is the moving average of the duration of tasks.
type pace struct{ mean atomic.Int64 } // nanoseconds; 0: nothing known

// If tasks take less than shortTask on average, the worker draws more tasks than it has
// free places: to wait for the next task from the server would cost more than the task.
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

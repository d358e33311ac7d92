package quota

import (
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// Counted counts each message of the work queue once in its sender's quota of the durable lane,
// whether the worker draws it or overhears it. It remembers at least the last maxCounted delayed
// messages and commands. A message that it has forgotten is counted again, and may be delayed
// again.
type Counted struct {
	mu       sync.Mutex
	new, old map[uint64]bool // by sequence: whether the message is within the quota
}

const maxCounted = 32768

// Pace applies the quotas to a message that was drawn, see [Table].
func (c *Counted) Pace(q *Table, seq uint64, e *envelope.Envelope, verified bool, now time.Time) (envelope.Priority, *envelope.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, again := c.get(seq)
	priority, problem := q.pace(e, verified, again, now)
	if problem != nil || intents.IsCommand(e.Intent) {
		c.set(seq, problem == nil)
	}
	return priority, problem
}

// Overheard reports whether a message that is read without being drawn is within its sender's
// quota. It counts only a message that is within the quota; any other is counted when it is drawn.
// A message that was drawn and delayed is not within the quota.
func (c *Counted) Overheard(q *Table, seq uint64, e *envelope.Envelope, verified bool, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	within, again := c.get(seq)
	if !again && q.atOnce(e, verified, now) {
		within = true
		c.set(seq, true)
	}
	return within
}

// Add remembers a message, by its sequence, as one that is delayed.
func (c *Counted) Add(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(seq, false)
}

// Has reports whether a message is remembered.
func (c *Counted) Has(seq uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.get(seq)
	return ok
}

func (c *Counted) get(seq uint64) (within, ok bool) {
	if within, ok = c.new[seq]; !ok {
		within, ok = c.old[seq]
	}
	return within, ok
}

func (c *Counted) set(seq uint64, within bool) {
	if c.new == nil || len(c.new) >= maxCounted {
		c.new, c.old = map[uint64]bool{}, c.new
	}
	c.new[seq] = within
}

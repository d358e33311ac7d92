package quota

import "sync"

// Counted remembers at least the last maxCounted messages of the work queue that were
// counted in their sender's quota. A message that was dropped from it is counted
// again, and delayed once more.
type Counted struct {
	mu       sync.Mutex
	new, old map[uint64]struct{}
}

const maxCounted = 32768

// Add remembers a message, by its sequence.
func (c *Counted) Add(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.new == nil || len(c.new) >= maxCounted {
		c.new, c.old = map[uint64]struct{}{}, c.new
	}
	c.new[seq] = struct{}{}
}

// Has reports whether a message is remembered.
func (c *Counted) Has(seq uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, recent := c.new[seq]
	_, older := c.old[seq]
	return recent || older
}

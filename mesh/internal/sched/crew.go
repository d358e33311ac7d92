package sched

import (
	"slices"
	"sync"
	"time"
)

// Crew runs functions in the order in which they come, on a bounded number of goroutines
// that it starts when they are needed. One that has had nothing to do for crewLinger ends:
// an idle crew costs no goroutine.
type Crew struct {
	most, bound int

	mu      sync.Mutex
	n       int           // goroutines
	waiting []func()      // for a goroutine
	idle    []chan func() // goroutines that wait for a function
	closed  bool
	ended   sync.Cond
}

// crewLinger is longer than the pauses of steady work: a new goroutine has to grow its
// stack first.
const crewLinger = time.Second

// NewCrew makes a crew of most goroutines; up to bound functions wait for one.
func NewCrew(most, bound int) *Crew {
	c := &Crew{most: most, bound: bound}
	c.ended.L = &c.mu
	return c
}

// Go has the crew run f. It returns false where too many functions wait, or the crew is
// closed.
func (c *Crew) Go(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch last := len(c.idle) - 1; {
	case c.closed:
		return false
	case last >= 0:
		c.idle[last] <- f
		c.idle = c.idle[:last]
	case c.n < c.most:
		c.n++
		go c.run(f)
	case len(c.waiting) >= c.bound:
		return false
	default:
		c.waiting = append(c.waiting, f)
	}
	return true
}

func (c *Crew) run(f func()) {
	defer c.end()
	next := make(chan func(), 1)
	timer := time.NewTimer(crewLinger)
	defer timer.Stop()
	for f != nil {
		f()
		f = c.next(next, timer)
	}
}

// end ends a goroutine. If a function ended it (runtime.Goexit), functions may wait: another takes
// its place.
func (c *Crew) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.first(); f != nil {
		go c.run(f)
		return
	}
	c.n--
	c.ended.Broadcast()
}

// first removes and returns the function that has waited longest, nil if none waits. c.mu is held.
func (c *Crew) first() func() {
	if len(c.waiting) == 0 {
		return nil
	}
	f := c.waiting[0]
	if c.waiting = c.waiting[1:]; len(c.waiting) == 0 {
		c.waiting = nil
	}
	return f
}

// next returns the next function for a goroutine; nil: it ends.
func (c *Crew) next(next chan func(), timer *time.Timer) func() {
	c.mu.Lock()
	if f := c.first(); f != nil {
		c.mu.Unlock()
		return f
	}
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.idle = append(c.idle, next)
	c.mu.Unlock()
	timer.Reset(crewLinger)
	select {
	case f := <-next:
		return f
	case <-timer.C:
	}
	c.mu.Lock()
	if i := slices.Index(c.idle, next); i >= 0 {
		if c.idle = slices.Delete(c.idle, i, i+1); len(c.idle) == 0 {
			c.idle = nil
		}
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	return <-next
}

// Close has the crew take no more functions, and returns when those that it has taken have
// returned.
func (c *Crew) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, next := range c.idle {
		close(next)
	}
	c.idle = nil
	for c.n > 0 {
		c.ended.Wait()
	}
}

package sched

import "sync"

// Group is goroutines that are waited for. Other than with a [sync.WaitGroup], more may
// be begun while Wait waits, by any goroutine; they are waited for too.
//
// A goroutine whose function returns while others still run goes on with the
// next one: a new goroutine would have to grow its stack first, which costs more
// than most of what runs here. When the last function returns, all of them end.
type Group struct {
	mu      sync.Mutex
	n       int             // functions that have not returned
	waiting []chan<- func() // goroutines without one
	idle    sync.Cond
}

// maxWaiting bounds the goroutines that wait for a function.
const maxWaiting = 64

// Go runs f in a goroutine of the group.
func (g *Group) Go(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
	if last := len(g.waiting) - 1; last >= 0 {
		g.waiting[last] <- f
		g.waiting = g.waiting[:last]
		return
	}
	go g.run(f)
}

func (g *Group) run(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f = g.call(f, next)
	}
}

// call returns the function that follows on f; nil: none does.
func (g *Group) call(f func(), next chan func()) func() {
	returned := false
	defer func() {
		if !returned {
			g.done(nil) // a panic, or the goroutine was ended
		}
	}()
	f()
	returned = true
	if !g.done(next) {
		return nil
	}
	return <-next
}

// done counts a function as returned, and reports whether another one comes by
// next.
func (g *Group) done(next chan<- func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.n > 0 {
		if next == nil || len(g.waiting) >= maxWaiting {
			return false
		}
		g.waiting = append(g.waiting, next)
		return true
	}
	for _, other := range g.waiting {
		close(other)
	}
	g.waiting = nil
	if g.idle.L != nil {
		g.idle.Broadcast()
	}
	return false
}

// Wait returns when no goroutine of the group runs.
func (g *Group) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle.L == nil {
		g.idle.L = &g.mu
	}
	for g.n > 0 {
		g.idle.Wait()
	}
}

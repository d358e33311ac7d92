package mesh

import "sync"

// group is goroutines that somebody waits for. Other than with a
// [sync.WaitGroup], more may be begun while somebody waits, by any goroutine;
// they are waited for too.
type group struct {
	mu   sync.Mutex
	n    int
	idle sync.Cond
}

// Go runs f in a goroutine of the group.
func (g *group) Go(f func()) {
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
	go func() {
		defer g.done()
		f()
	}()
}

func (g *group) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.n == 0 && g.idle.L != nil {
		g.idle.Broadcast()
	}
}

// Wait returns when no goroutine of the group runs.
func (g *group) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle.L == nil {
		g.idle.L = &g.mu
	}
	for g.n > 0 {
		g.idle.Wait()
	}
}

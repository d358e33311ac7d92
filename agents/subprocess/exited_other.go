//go:build !linux

package subprocess

import "sync"

// waited holds the result of Wait, which Exited has to call on these systems.
type waited struct {
	once sync.Once
	err  error
}

// Exited waits until the program has ended. On these systems this releases its
// process id: a later signal to its group may, in principle, reach another
// group with the same id.
func (g *Group) Exited() { g.waited.once.Do(func() { g.waited.err = g.cmd.Wait() }) }

func (g *Group) reap() error { return g.waited.err }

//go:build !linux

package subprocess

import "sync"

// waited is how the program ended, which Exited has to wait for here.
type waited struct {
	once sync.Once
	err  error
}

// Exited waits until the program has ended. There is no way here to learn that
// without giving up its number: a signal to its group that follows may, in
// principle, reach another group that was given the number meanwhile.
func (g *Group) Exited() { g.waited.once.Do(func() { g.waited.err = g.cmd.Wait() }) }

func (g *Group) reap() error { return g.waited.err }

package subprocess

import (
	"errors"

	"golang.org/x/sys/unix"
)

type waited struct{}

// Exited waits until the program has ended. Until Wait is called, the ids of
// the process and its group are not reused, so the group can still be
// signalled.
func (g *Group) Exited() {
	for {
		err := unix.Waitid(unix.P_PID, g.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return // it has ended, or Wait was called
		}
	}
}

func (g *Group) reap() error { return g.cmd.Wait() }

package subprocess

import (
	"errors"

	"golang.org/x/sys/unix"
)

type waited struct{}

// Exited waits until the program has ended. Until Wait is called, its number and
// its group's belong to nothing else, so that the group can still be signalled.
func (g *Group) Exited() {
	for {
		err := unix.Waitid(unix.P_PID, g.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return // it has ended, or was waited for already
		}
	}
}

func (g *Group) reap() error { return g.cmd.Wait() }

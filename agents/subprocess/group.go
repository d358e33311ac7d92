package subprocess

import (
	"os/exec"
	"sync"
)

// A Group is a started program with the process group that it leads. Its
// methods are safe for concurrent use, except for Wait, which must be called
// once.
type Group struct {
	cmd *exec.Cmd

	mu     sync.Mutex
	reaped bool
	waited
}

// Start starts a program as the leader of its own group. On systems without
// process groups, the Group is the program alone.
func Start(cmd *exec.Cmd) (*Group, error) {
	own(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Group{cmd: cmd}, nil
}

// PID returns the program's process id.
func (g *Group) PID() int { return g.cmd.Process.Pid }

// Terminate asks the group to end. After Wait was called it does nothing.
func (g *Group) Terminate() { g.signal(terminate) }

// Kill kills the group. After Wait was called it does nothing.
func (g *Group) Kill() { g.signal(kill) }

func (g *Group) signal(send func(*exec.Cmd)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reaped {
		send(g.cmd)
	}
}

// Wait waits until the program has ended, and releases the group's id. It
// returns the result of [exec.Cmd.Wait].
func (g *Group) Wait() error {
	g.Exited()
	g.mu.Lock()
	g.reaped = true
	g.mu.Unlock()
	return g.reap()
}

package subprocess

import (
	"os/exec"
	"sync"
)

// A Group is a program that was started, with the process group that it leads.
// Its methods may be called by any number of goroutines at once, but for Wait,
// which is called once.
type Group struct {
	cmd *exec.Cmd

	mu     sync.Mutex
	reaped bool
	waited
}

// Start starts a program as the leader of a group of its own. On systems without
// process groups the program itself stands for its group.
func Start(cmd *exec.Cmd) (*Group, error) {
	own(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Group{cmd: cmd}, nil
}

// PID is the program's process id.
func (g *Group) PID() int { return g.cmd.Process.Pid }

// Terminate asks the group to end. It does nothing once Wait was called.
func (g *Group) Terminate() { g.signal(terminate) }

// Kill ends the group. It does nothing once Wait was called.
func (g *Group) Kill() { g.signal(kill) }

func (g *Group) signal(send func(*exec.Cmd)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reaped {
		send(g.cmd)
	}
}

// Wait waits until the program has ended, and gives up the group's number. It
// returns what [exec.Cmd.Wait] does.
func (g *Group) Wait() error {
	g.Exited()
	g.mu.Lock()
	g.reaped = true
	g.mu.Unlock()
	return g.reap()
}

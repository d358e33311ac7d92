package program

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/agents/subprocess"
)

// process is one run of the program, from start to exit.
type process struct {
	p     *Program
	group *subprocess.Group
	pipes subprocess.Pipes

	lines    chan *writing // lines for the writer, which accepts one at a time
	gone     chan struct{} // closed when no more tasks are accepted
	broken   chan error    // the program has closed a pipe
	answered atomic.Bool
	loops    sync.WaitGroup

	mu      sync.Mutex
	flights map[string]*flight // nil once no answer can arrive any more
	ended   recent
}

// startProcess starts the program. If it fails, nothing is left running.
func startProcess(p *Program) (_ *process, err error) {
	made := &process{
		p: p, lines: make(chan *writing), gone: make(chan struct{}), broken: make(chan error, 2),
		flights: make(map[string]*flight),
	}
	cmd := exec.Command(p.cfg.Command[0], p.cfg.Command[1:]...)
	cmd.Env = p.cfg.Env
	if made.group, made.pipes, err = subprocess.StartPiped(cmd); err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	return made, nil
}

// lastWords is how long the pipes of an exited program are still read. They end
// at once unless a process that has left the group holds them open.
const lastWords = time.Second

// supervise runs the process until it ends, by itself or because ctx ends, and
// returns when nothing of it is left. It calls down when the process accepts no
// more tasks. The error says how the process ended.
func (x *process) supervise(ctx context.Context, down func()) error {
	x.loops.Go(x.writeLoop)
	x.loops.Go(x.readLoop)
	x.loops.Go(x.stderrLoop)
	exited := make(chan error, 1)
	go func() {
		x.group.Exited()
		x.group.Kill() // processes that it has left behind
		exited <- x.group.Wait()
	}()

	var err, why error
	select {
	case err = <-exited:
		down()
		close(x.gone)
	case why = <-x.broken:
		down()
		close(x.gone)
		err, why = x.hungUp(ctx, exited, why)
	case <-ctx.Done():
		down()
		close(x.gone)
		err = x.stop(exited)
	}
	deadline := time.Now().Add(lastWords)
	x.pipes.Stdout.SetReadDeadline(deadline)
	x.pipes.Stderr.SetReadDeadline(deadline)
	x.pipes.Stdin.Close()
	x.loops.Wait()
	x.pipes.Close()
	switch {
	case why != nil:
		return why
	case err == nil:
		return errors.New("exit status 0")
	}
	return err
}

// hungUp stops a process that has closed a pipe, and returns how it ended. A
// process that exits by itself closes its pipes first: then its exit is the
// reason, and why is nil.
func (x *process) hungUp(ctx context.Context, exited <-chan error, reason error) (err, why error) {
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case err := <-exited:
		return err, nil
	case <-ctx.Done():
	case <-timer.C:
		x.p.cfg.Logger.Warn("program is being stopped", "reason", reason.Error(), "pid", x.group.PID())
	}
	return x.stop(exited), reason
}

// stop ends the process: it closes its standard input, then sends SIGTERM, then
// SIGKILL.
func (x *process) stop(exited <-chan error) error {
	x.pipes.Stdin.Close()
	for _, step := range []struct {
		wait time.Duration
		next func()
	}{{x.p.cfg.Grace, x.group.Terminate}, {x.p.cfg.TermGrace, x.group.Kill}} {
		timer := time.NewTimer(step.wait)
		select {
		case err := <-exited:
			timer.Stop()
			return err
		case <-timer.C:
			step.next()
		}
	}
	return <-exited
}

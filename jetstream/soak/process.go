package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A launcher starts the processes of one soak.
type launcher struct {
	self []string // the command that runs a role: the binary, and the arguments before the role's name
	dir  string   // for the standard error of the processes, one file for each name
}

// A process is one child. It exits when its standard input closes, so that none survives
// if the soak itself is killed.
type process struct {
	ready string      // the first line that it wrote
	lines chan string // the lines after it; closed at its end
	ended chan struct{}

	cmd   *exec.Cmd
	stdin io.WriteCloser
	write sync.Mutex
	log   *os.File

	ending atomic.Bool // it was told to end
}

// errNotReady: a child exited before it reported that it was ready.
var errNotReady = errors.New("it did not start")

// start runs a role and waits for its first line.
func (l *launcher) start(ctx context.Context, name string, role ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(l.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{lines: make(chan string, 64), ended: make(chan struct{}), log: log}
	p.cmd = exec.Command(l.self[0], append(l.self[1:len(l.self):len(l.self)], role...)...)
	p.cmd.Stderr = log
	ownProcessGroup(p.cmd)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	go p.read(stdout)
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.stdin.Close()
			return nil, fmt.Errorf("start %s: %w: %s", name, errNotReady, p.lastWords())
		}
		p.ready = line
		return p, nil
	case <-ctx.Done():
		p.kill()
		return nil, fmt.Errorf("start %s: %w: %s", name, ctx.Err(), p.lastWords())
	}
}

// read passes the child's lines on until its end.
func (p *process) read(stdout io.Reader) {
	in := bufio.NewScanner(stdout)
	for in.Scan() {
		p.lines <- in.Text()
	}
	p.cmd.Wait()
	p.log.Close()
	close(p.lines)
	close(p.ended)
}

// lastWords returns the last line of the log.
func (p *process) lastWords() string {
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// say writes one line to the child. If the child has exited, the line is lost.
func (p *process) say(line string) {
	p.write.Lock()
	defer p.write.Unlock()
	io.WriteString(p.stdin, line+"\n")
}

// kill kills the child as kill -9 does, and returns when it has exited.
func (p *process) kill() {
	p.ending.Store(true)
	p.cmd.Process.Kill()
	p.drain()
}

// stop asks the child to exit, and kills it if it takes longer than patience.
func (p *process) stop(patience time.Duration) {
	p.ending.Store(true)
	terminate(p.cmd.Process)
	after := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
	defer after.Stop()
	p.drain()
}

// drain discards the remaining lines until the child exits.
func (p *process) drain() {
	for {
		select {
		case <-p.lines:
		case <-p.ended:
			p.stdin.Close()
			return
		}
	}
}

// pause stops the child as SIGSTOP does; resume continues it.
func (p *process) pause()  { freeze(p.cmd.Process) }
func (p *process) resume() { thaw(p.cmd.Process) }

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/aeemesh/aeemesh/agents/subprocess"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// How long to wait for a program to exit: before SIGTERM, before it is killed,
// and for its children afterwards.
const (
	graceClose = 2 * time.Second
	graceTerm  = 2 * time.Second
	graceChild = 100 * time.Millisecond
)

// errExit says how a program ended without a failure, as exec.ExitError says it of one with a failure.
var errExit = errors.New("exit status 0")

var errTooLarge = errors.New("a message of the server exceeds the bound")

// pipes are the standard input and output of a program, with one message per
// line.
type pipes struct {
	group  *subprocess.Group
	stdin  *os.File
	stdout *os.File
	stderr *stderrLog

	writeTimeout time.Duration
	occupied     func(since time.Time) bool // see link.occupied

	incoming chan frame
	drained  chan struct{} // closed when no more output is read
	closing  sync.Once
	closed   chan struct{}
	ended    chan struct{} // closed when the program and its children have ended
	exit     error         // how the program ended; set before ended is closed
}

type frame struct {
	line []byte
	err  error
}

// startPipes starts a server's program.
func startPipes(s *Server, cfg *Config, log *slog.Logger) (*pipes, error) {
	program, err := exec.LookPath(s.Command[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, s.Command[1:]...)
	cmd.Args[0] = s.Command[0]
	cmd.Dir = s.Dir
	cmd.Env = subprocess.Env(s.Env, cfg.Env)
	stderr := &stderrLog{log: log, known: cfg.Redactor, limit: rate.NewLimiter(10, 50)}
	cmd.Stderr = stderr
	cmd.WaitDelay = graceTerm // a child process may hold standard error open
	group, ours, err := subprocess.StartPiped(cmd)
	if err != nil {
		return nil, err
	}
	p := &pipes{group: group, stdin: ours.Stdin, stdout: ours.Stdout, stderr: stderr, writeTimeout: cfg.writeTimeout, occupied: neverOccupied, incoming: make(chan frame),
		drained: make(chan struct{}), closed: make(chan struct{}), ended: make(chan struct{})}
	go p.pump(cfg.MaxMessage)
	return p, nil
}

// pump reads lines until standard output ends. After close it drops them, so
// that the program can exit.
func (p *pipes) pump(maxMessage int) {
	defer close(p.drained)
	lines := bufio.NewReaderSize(p.stdout, 64<<10)
	for {
		line, err := readLine(lines, maxMessage)
		select {
		case p.incoming <- frame{line, err}:
			if err == nil {
				continue
			}
		case <-p.closed:
		}
		_, _ = io.Copy(io.Discard, lines)
		return
	}
}

func (p *pipes) read(ctx context.Context) ([]byte, error) {
	select {
	case f := <-p.incoming:
		return f.line, f.err
	case <-p.drained:
		return nil, io.EOF
	case <-p.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readLine reads up to a newline. Text without a newline at the end is dropped.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, errTooLarge
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		default:
			return line, nil
		}
	}
}

// write sends a message. A program that works on a call may read nothing meanwhile.
func (p *pipes) write(_ context.Context, message []byte) error {
	message = append(message, '\n')
	for rest := message; ; {
		since := time.Now()
		// Not all systems support deadlines for pipes.
		_ = p.stdin.SetWriteDeadline(since.Add(p.writeTimeout))
		n, err := p.stdin.Write(rest)
		if rest = rest[n:]; errors.Is(err, os.ErrDeadlineExceeded) && p.occupied(since) {
			continue
		}
		if err != nil && len(rest) < len(message) {
			_ = p.close() // the program would take the next message for the rest of this one
		}
		return err
	}
}

// close ends the program by MCP's rules (Lifecycle, Shutdown): it closes its
// standard input, then sends SIGTERM, then SIGKILL, the signals to its whole
// process group. It does not wait; ended is closed when the program has ended.
func (p *pipes) close() error {
	p.closing.Do(func() {
		close(p.closed)
		_ = p.stdin.Close()
		go p.end()
	})
	return nil
}

func (p *pipes) end() {
	defer close(p.ended)
	patience := graceTerm
	if p.isDrained(graceClose) {
		patience = graceChild
	}
	p.group.Terminate()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	if patience == graceTerm {
		p.isDrained(patience)
	} else {
		<-timer.C
	}
	p.group.Kill()
	if p.exit = p.group.Wait(); p.exit == nil {
		p.exit = errExit
	}
	p.stderr.flush() // also text without a final newline; no goroutine writes to it any more
	_ = p.stdout.Close()
	<-p.drained
}

// isDrained waits until standard output ends, which happens when the program
// exits.
func (p *pipes) isDrained(patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.drained:
		return true
	case <-timer.C:
		return false
	}
}

// stderrLog logs a program's standard error, line by line, within limits.
type stderrLog struct {
	log     *slog.Logger
	known   tool.Redactor
	limit   *rate.Limiter
	line    []byte
	cut     bool // the line is longer
	dropped int
}

const maxStderrLine = 1 << 10 // bytes

func (s *stderrLog) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		part := rest
		if end >= 0 {
			part, rest = rest[:end], rest[end+1:]
		} else {
			rest = nil
		}
		room := min(len(part), maxStderrLine-len(s.line))
		s.line, s.cut = append(s.line, part[:room]...), s.cut || room < len(part)
		if end >= 0 {
			s.flush()
		}
	}
	return len(p), nil
}

func (s *stderrLog) flush() {
	text := string(s.line)
	if s.cut {
		text = s.known.Head(text)
	}
	text = strings.TrimSpace(strings.ToValidUTF8(s.known.Scrub(text), "\ufffd"))
	s.line, s.cut = s.line[:0], false
	switch {
	case text == "":
	case !s.limit.Allow():
		s.dropped++
	default:
		attrs := []any{"stderr", text}
		if s.dropped > 0 {
			attrs = append(attrs, "dropped", s.dropped)
			s.dropped = 0
		}
		s.log.Info("mcp server wrote to standard error", attrs...)
	}
}

var _ io.Writer = (*stderrLog)(nil)

// startWords describes why a program did not start, without paths of this
// machine.
func startWords(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return errors.New("its program is not found")
	}
	if errors.Is(err, os.ErrPermission) {
		return errors.New("its program may not be run")
	}
	return fmt.Errorf("its program does not start")
}

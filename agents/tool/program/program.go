package program

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/subprocess"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// The defaults of [Config].
const (
	DefaultMaxResult = 1 << 20 // bytes
	DefaultMaxStderr = 8 << 10 // bytes
)

// grace is how long children may hold the pipes of a program open after it has exited.
const grace = 2 * time.Second

// KeyVariable is the environment variable with the idempotency key of a call,
// if it has one; see [tool.KeyFrom].
const KeyVariable = "AEEMESH_IDEMPOTENCY_KEY"

// Config says which program to run, and how.
type Config struct {
	// Definition is the definition that the model sees.
	Definition tool.Definition

	// Command is the program and its arguments. The program is named by a path
	// with a slash, absolute or relative to Dir; this package searches no PATH.
	Command []string

	// Dir is the working directory. Default: that of the worker.
	Dir string

	// Env is the whole environment, as NAME=value, but for [KeyVariable], which
	// is added. Default: empty.
	Env []string

	// RepeatSafe declares that the program may be run again if the outcome of a call is unknown;
	// see [tool.Repeatable].
	RepeatSafe bool

	// MaxResult bounds standard output, in bytes. Default 1 MiB.
	MaxResult int

	// MaxStderr is how many bytes of standard error, the last ones, go to the
	// log. Default 8 KiB.
	MaxStderr int

	// Log receives the standard error of programs, at level Info, if the call
	// does not fail. Otherwise the call's error contains it: its cause is an
	// [slog.LogValuer]. Default: discarded.
	Log *slog.Logger

	// Redactor removes credentials from standard error, also one whose first part was cut off.
	// Default: none are known.
	Redactor tool.Redactor
}

// Tool runs a program for each call. Make it with [New].
type Tool struct{ cfg Config }

// New returns a Tool, or all errors in cfg. It does no I/O: a missing program
// is reported by the first call.
func New(cfg Config) (*Tool, error) {
	var problems []error
	if err := cfg.Definition.Validate(); err != nil {
		problems = append(problems, err)
	}
	switch {
	case len(cfg.Command) == 0:
		problems = append(problems, errors.New("command: must not be empty"))
	case !strings.ContainsAny(cfg.Command[0], `/\`):
		problems = append(problems, fmt.Errorf("command: %q: give the program's path, with a slash", cfg.Command[0]))
	}
	for i, arg := range cfg.Command {
		if strings.ContainsRune(arg, 0) {
			problems = append(problems, fmt.Errorf("command[%d]: has a NUL", i))
		}
	}
	for i, env := range cfg.Env {
		if name, _, ok := strings.Cut(env, "="); !ok || name == "" || strings.ContainsRune(env, 0) {
			problems = append(problems, fmt.Errorf("env[%d]: want NAME=value", i)) // values must not appear in errors
		}
	}
	if cfg.MaxResult < 0 || cfg.MaxStderr < 0 {
		problems = append(problems, errors.New("max result and max stderr must not be negative"))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("program tool: %w", errors.Join(problems...))
	}
	cfg.MaxResult = cmp.Or(cfg.MaxResult, DefaultMaxResult)
	cfg.MaxStderr = cmp.Or(cfg.MaxStderr, DefaultMaxStderr)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Redactor == nil {
		cfg.Redactor = tool.NoRedactor{}
	}
	cfg.Command = slices.Clone(cfg.Command)
	cfg.Env = append([]string{}, cfg.Env...) // never nil, because os/exec would inherit the environment
	return &Tool{cfg}, nil
}

// Definition returns the definition that the model sees.
func (t *Tool) Definition() tool.Definition { return t.cfg.Definition }

// RepeatSafe returns Config.RepeatSafe.
func (t *Tool) RepeatSafe() bool { return t.cfg.RepeatSafe }

// Call runs the program.
func (t *Tool) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout := &head{max: t.cfg.MaxResult, overflow: func() { cancel(errTooMuch) }}
	stderr := &tail{max: t.cfg.MaxStderr, known: t.cfg.Redactor}

	cmd := exec.Command(t.cfg.Command[0], t.cfg.Command[1:]...)
	cmd.Dir = t.cfg.Dir
	cmd.Env = t.cfg.Env
	if key := tool.KeyFrom(ctx); key != "" {
		cmd.Env = append(slices.Clip(cmd.Env), KeyVariable+"="+key)
	}
	left, err := run(runCtx, cmd, args, stdout, stderr)
	switch {
	case cmd.ProcessState == nil:
		// The reason contains paths of this machine: it is for the log, not the
		// model.
		return nil, &tool.Error{Kind: tool.ErrFailed, Tool: t.cfg.Definition.Name, Message: "the program could not be started", NotMade: true, Err: &ended{err, stderr}}
	case context.Cause(runCtx) == errTooMuch:
		return nil, t.fail(tool.ErrInvalidResult, fmt.Sprintf("more than %d bytes", t.cfg.MaxResult), &ended{errTooMuch, stderr})
	case ctx.Err() != nil:
		t.log(ctx, stderr)
		return nil, ctx.Err()
	case left:
		return nil, t.fail(tool.ErrFailed, "the program left a child behind", &ended{errLeft, stderr})
	case err != nil:
		return nil, t.fail(tool.ErrFailed, words(stdout.buf.Bytes(), cmd), &ended{err, stderr})
	}
	result := bytes.TrimSpace(stdout.buf.Bytes())
	if !json.Valid(result) {
		return nil, t.fail(tool.ErrInvalidResult, "the program's output is not one JSON value", &ended{errNotJSON, stderr})
	}
	t.log(ctx, stderr)
	return result, nil
}

// run runs a program until it has ended and its output is read. left reports
// that children held its input or output open for longer than the grace. When
// the program or ctx ends, its whole group is killed.
func run(ctx context.Context, cmd *exec.Cmd, stdin []byte, stdout, stderr io.Writer) (left bool, err error) {
	group, pipes, err := subprocess.StartPiped(cmd)
	if err != nil {
		return false, err
	}
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = pipes.Stdin.Write(stdin) // a program need not read its input
		_ = pipes.Stdin.Close()
	})
	copying.Go(func() { _, _ = io.Copy(stdout, pipes.Stdout) })
	copying.Go(func() { _, _ = io.Copy(stderr, pipes.Stderr) })
	copied := make(chan struct{})
	go func() { copying.Wait(); close(copied) }()

	stop := context.AfterFunc(ctx, group.Kill)
	defer stop()
	group.Exited()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-copied:
	case <-timer.C:
		left = true
	}
	group.Kill() // children that hold neither
	err = group.Wait()
	pipes.Close() // a child that has left the group may hold the other ends
	<-copied
	return left, err
}

var (
	errTooMuch = errors.New("the program writes more than it may")
	errLeft    = errors.New("the program has ended, and a child of it held its input or output open")
	errNotJSON = errors.New("the program's output is not one JSON value")
)

// ended is why a call has failed, with the program's standard error, for the
// line that the caller logs.
type ended struct {
	error
	stderr *tail
}

func (e *ended) Unwrap() error { return e.error }

// LogValue implements [slog.LogValuer].
func (e *ended) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{slog.String("err", e.Error())}, e.stderr.attrs()...)...)
}

func (t *Tool) fail(kind tool.Kind, message string, cause error) error {
	return &tool.Error{Kind: kind, Tool: t.cfg.Definition.Name, Message: message, Err: cause}
}

// words returns the text for the model about a program that failed.
func words(stdout []byte, cmd *exec.Cmd) string {
	var out struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(stdout, &out) == nil && out.Error != "" {
		return out.Error
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return fmt.Sprintf("the program exited with status %d", code)
	}
	return "the program was killed"
}

// log logs the standard error of a program that succeeded.
func (t *Tool) log(ctx context.Context, stderr *tail) {
	if attrs := stderr.attrs(); attrs != nil {
		t.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "tool program wrote to standard error", append([]slog.Attr{slog.String("tool", t.cfg.Definition.Name)}, attrs...)...)
	}
}

// head stores up to max bytes, and then calls overflow.
type head struct {
	buf      bytes.Buffer
	max      int
	overflow func()
}

func (h *head) Write(p []byte) (int, error) {
	if h.buf.Len()+len(p) > h.max {
		h.overflow()
		return 0, io.ErrShortWrite
	}
	return h.buf.Write(p)
}

// tail stores the last max bytes.
type tail struct {
	buf   []byte
	max   int
	cut   bool
	known tool.Redactor
}

// attrs returns the log attributes; nil if there is no output.
func (t *tail) attrs() []slog.Attr {
	if len(t.buf) == 0 {
		return nil
	}
	text := string(t.buf)
	if t.cut {
		text = t.known.Tail(text)
	}
	out := []slog.Attr{slog.String("stderr", strings.ToValidUTF8(t.known.Scrub(text), "\ufffd"))}
	if t.cut {
		out = append(out, slog.Bool("cut", true))
	}
	return out
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.max; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
		t.cut = true
	}
	return len(p), nil
}

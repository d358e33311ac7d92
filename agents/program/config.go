package program

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/aeemesh/aeemesh/agents/secret"
)

// Defaults of [Config].
const (
	DefaultMaxLine       = 8 << 20 // bytes
	DefaultStartWait     = 5 * time.Second
	DefaultWriteTimeout  = 10 * time.Second
	DefaultLinger        = 5 * time.Second
	DefaultStreamTimeout = 10 * time.Second
	DefaultRestartMin    = 100 * time.Millisecond
	DefaultRestartMax    = 30 * time.Second
	DefaultStableAfter   = 5 * time.Second
	DefaultGrace         = 5 * time.Second
	DefaultTermGrace     = 2 * time.Second
)

// Config says which program to run and with which limits. Only Command is
// required.
type Config struct {
	// Command is the program and its arguments; agents.SplitCommand makes them of a command line.
	// Only the operator sets it: no document can name it.
	Command []string
	// Env is its complete environment, as NAME=value; see [subprocess.Env].
	// Default: empty. Nothing is inherited.
	Env []string

	// MaxLine bounds a line of its output, in bytes. A longer line is skipped
	// and counted. If it answers a task, the task fails with E_TOO_LARGE.
	// Default 8 MiB.
	MaxLine int
	// StartWait is how long a task waits for a program that is being
	// restarted, before its sender gets E_UNAVAILABLE. Default 5 s.
	StartWait time.Duration
	// WriteTimeout is how long the program may take to read a task from its
	// standard input, before its sender gets E_UNAVAILABLE. Default 10 s.
	WriteTimeout time.Duration
	// StreamTimeout is how long reading the program's output pauses when MaxLine bytes of a task's
	// stream are not sent yet. If nothing is sent in that time, the rest of the task's stream is
	// dropped. Default 10 s.
	StreamTimeout time.Duration
	// Linger is how long a cancelled or timed out task keeps its place and its
	// slot until the program has answered it as well, so that the program never
	// has more tasks than the agent's concurrency in that time. If no place is free because of such
	// tasks, other tasks get E_BUSY at once, with the rest of Linger as
	// backoff. Default 5 s.
	Linger time.Duration

	// RestartMin and RestartMax bound the pause before a restart. The pause
	// doubles each time and has a random part. Default 100 ms and 30 s.
	RestartMin, RestartMax time.Duration
	// StableAfter is how long a program that answers no task must run until its
	// failures are forgotten: the restart pause starts over, and
	// [Program.Health] is healthy. Default 5 s.
	StableAfter time.Duration

	// Grace is how long the program may take to end after its standard input
	// was closed, before it gets SIGTERM. TermGrace is how long it has then,
	// before its whole process group is killed. Default 5 s and 2 s.
	Grace, TermGrace time.Duration

	// Stderr receives the program's standard error, one line per Write,
	// truncated to 4 KiB. Default: Logger, at most 50 lines a second.
	Stderr io.Writer
	// Redactor removes credentials from standard error, also those in the
	// middle of which a line is truncated. Default: none are known.
	Redactor *secret.Redactor
	// Logger receives starts, exits and ignored lines, but never the content of
	// lines. Default: discarded.
	Logger *slog.Logger
}

// complete sets the defaults and reports invalid settings.
func (c *Config) complete() error {
	var bad []error
	if len(c.Command) == 0 || c.Command[0] == "" {
		bad = append(bad, errors.New("a command is needed"))
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"start wait", &c.StartWait, DefaultStartWait}, {"write timeout", &c.WriteTimeout, DefaultWriteTimeout},
		{"stream timeout", &c.StreamTimeout, DefaultStreamTimeout},
		{"linger", &c.Linger, DefaultLinger}, {"restart min", &c.RestartMin, DefaultRestartMin},
		{"restart max", &c.RestartMax, DefaultRestartMax}, {"stable after", &c.StableAfter, DefaultStableAfter},
		{"grace", &c.Grace, DefaultGrace}, {"term grace", &c.TermGrace, DefaultTermGrace},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < 0 {
			bad = append(bad, fmt.Errorf("%s %v: must be above 0", d.name, *d.value))
		}
	}
	c.RestartMax = max(c.RestartMax, c.RestartMin)
	c.MaxLine = cmp.Or(c.MaxLine, DefaultMaxLine)
	if c.MaxLine < 0 {
		bad = append(bad, fmt.Errorf("max line %d: must be above 0", c.MaxLine))
	}
	c.Env = append([]string{}, c.Env...) // never nil, which would mean inherit
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if err := errors.Join(bad...); err != nil {
		return fmt.Errorf("program: %w", err)
	}
	return nil
}

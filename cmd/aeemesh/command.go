package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

// do wraps f as a command's function: from its start on, errors are failures
// and not usage errors.
func (a *progApp) do(f func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.began = true
		err := f(cmd.Context(), cmd, args)
		var usage *outcome.UsageError
		if errors.As(err, &usage) && usage.Cmd == nil {
			usage.Cmd = cmd // the command's help has more
		}
		return err
	}
}

// adopt adds this program's conventions to a command that was made elsewhere.
func (a *progApp) adopt(c *cobra.Command) *cobra.Command {
	if inner := c.RunE; inner != nil {
		c.RunE = a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			err := inner(cmd, args)
			switch {
			case err == nil || ctx.Err() == nil:
				return err
			case cmd.Hidden: // a child process, whose parent reports its errors
				return outcome.ErrQuiet
			}
			return outcome.ErrInterrupted
		})
	}
	for _, child := range c.Commands() {
		a.adopt(child)
	}
	return c
}

// group runs a command that only holds subcommands: it runs "list" if there is
// one, else it prints its help.
func (a *progApp) group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		for _, child := range cmd.Commands() {
			if child.Name() == "list" {
				child.SetContext(cmd.Context())
				if err := a.fromEnvironment(child); err != nil {
					return err
				}
				return child.RunE(child, nil)
			}
		}
		_ = cmd.Help()
		return nil
	}
	err := &outcome.UsageError{Err: fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()), Cmd: cmd}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err.Hint = "Did you mean \"" + cmd.CommandPath() + " " + near[0] + "\"?"
	}
	return err
}

// holder makes a command that only holds subcommands.
func (a *progApp) holder(c *cobra.Command, children ...*cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = a.group
	c.AddCommand(children...)
	for _, child := range children {
		if child.Name() == "list" {
			child.Aliases = []string{"ls"}
		}
	}
	return c
}

// short makes a copy of a command under a shorter name that users of other
// tools expect.
func short(name string, c *cobra.Command) *cobra.Command {
	c.Use, c.Hidden = strings.Replace(c.Use, c.Name(), name, 1), true
	return c
}

// beginLog is called when a long-running command begins its work: from here on
// its messages are a log, and the first one identifies the process.
func (a *progApp) beginLog(cmd *cobra.Command) {
	outliveReaders()
	a.term.Logs.Store(term.LogWords)
	a.term.Tell(term.Event{Level: slog.LevelInfo, Style: term.StyleFaint, Msg: "starting",
		Attrs: []any{"command", cmd.Name(), "version", a.version, "host", hostname(), "pid", os.Getpid()}},
		"aeemesh %s %s on %s, process %d", a.version, cmd.Name(), hostname(), os.Getpid())
}

// hostname is this machine's name.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// outliveReaders keeps the process running when the reader of its output is
// gone: a closed pipe to a logger must not end a worker in the middle of its
// tasks. Otherwise Go would end the process with SIGPIPE.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

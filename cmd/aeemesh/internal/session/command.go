package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// Do wraps f as a command's function: from its start on, errors are failures
// and not usage errors.
func (a *App) Do(f func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.Began = true
		err := f(cmd.Context(), cmd, args)
		var usage *outcome.UsageError
		if errors.As(err, &usage) && usage.Cmd == nil {
			usage.Cmd = cmd // the command's help has more
		}
		err = a.OfVariables(cmd, err)
		if words := strings.Fields(cmd.Use); len(words) > 1 && words[1] == "ENTITY" && len(args) > 0 && subject.ValidateEntity(args[0]) == nil {
			return outcome.About(err, args[0])
		}
		return err
	}
}

// Adopt adds this program's conventions to a command that was made elsewhere.
func (a *App) Adopt(c *cobra.Command) *cobra.Command {
	if inner := c.RunE; inner != nil {
		c.RunE = a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
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
		a.Adopt(child)
	}
	return c
}

// Group runs a command that only holds subcommands: it runs "list" if there is
// one, else it prints its help.
func (a *App) Group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		for _, child := range cmd.Commands() {
			if child.Name() == "list" {
				child.SetContext(cmd.Context())
				if err := errors.Join(child.ParseFlags(nil), a.FromEnvironment(child)); err != nil { // ParseFlags adds the flags of its parents
					return err
				}
				return child.RunE(child, nil)
			}
		}
		if a.Term.JSON { // programs that read JSON expect data, not help text
			return &outcome.UsageError{Err: fmt.Errorf("%q needs a command", cmd.CommandPath()), Cmd: cmd}
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

// Holder makes a command that only holds subcommands.
func (a *App) Holder(c *cobra.Command, children ...*cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = a.Group
	c.AddCommand(children...)
	for _, child := range children {
		if child.Name() == "list" {
			child.Aliases = []string{"ls"}
		}
	}
	return c
}

// Short makes a copy of a command under a shorter name that users of other
// tools expect.
func Short(name string, c *cobra.Command) *cobra.Command {
	c.Use, c.Hidden = strings.Replace(c.Use, c.Name(), name, 1), true
	return c
}

// BeginLog is called when a long-running command begins its work: from here on
// its messages are a log, and the first one identifies the process.
func (a *App) BeginLog(cmd *cobra.Command) {
	OutliveReaders()
	a.Term.Logs.Store(term.LogWords)
	name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	a.Term.Tell(term.Event{Level: slog.LevelInfo, Style: term.StyleFaint, Msg: "starting",
		Attrs: []any{"command", name, "version", a.Version, "host", hostname(), "pid", os.Getpid()}},
		"aeemesh %s %s on %s, process %d", a.Version, name, hostname(), os.Getpid())
}

// hostname is this machine's name.
func hostname() string {
	name, _ := os.Hostname()
	return cmp.Or(name, "unknown")
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
)

// usageError is a command line that is wrong: exit 2.
type usageError struct {
	err  error
	hint string         // default: where to find the help
	cmd  *cobra.Command // may be nil
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...), cmd: cmd}
}

// arguments requires one argument for each name, and reports missing and
// surplus ones. A name in brackets is optional; a name that ends in "..." takes
// all that follow. RUN must not be empty: it may be the beginning of an id, and
// the empty text is the beginning of every id.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		var missing []string
		rest := false
		for i, name := range names {
			if i >= len(args) && !strings.HasPrefix(name, "[") {
				missing = append(missing, strings.TrimSuffix(name, "..."))
			}
			if name == "RUN" && i < len(args) && args[i] == "" {
				return usagef(cmd, "RUN is empty")
			}
			rest = rest || strings.HasSuffix(strings.TrimSuffix(name, "]"), "...")
		}
		switch {
		case len(missing) == 1:
			return usagef(cmd, "%s is missing", missing[0])
		case len(missing) > 1:
			return usagef(cmd, "%s are missing", strings.Join(missing, " and "))
		case len(args) > len(names) && !rest:
			return usagef(cmd, "%q is too much: \"%s\" takes %s", args[len(names)], cmd.CommandPath(), takes(names))
		}
		return nil
	}
}

func takes(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	return strings.Join(names, " ")
}

// hintedError is an error with a hint.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

func hinted(err error, format string, args ...any) error {
	return &hintedError{err, fmt.Sprintf(format, args...)}
}

// errQuiet is a failure that has been reported already.
var errQuiet = errors.New("failed")

// errInterrupted is the error of a command that a signal ended before it was
// done.
var errInterrupted = outcome.Stopped(context.Canceled, "interrupted")

// errorText removes repetitions that come from Go's wrapping of errors.
func errorText(err error) string {
	return strings.TrimRight(strings.ReplaceAll(err.Error(), "nats: ", ""), "\n")
}

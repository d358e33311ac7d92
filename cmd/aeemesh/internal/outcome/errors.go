package outcome

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// UsageError is a command line that is wrong: exit 2.
type UsageError struct {
	Err  error
	Hint string         // default: where to find the help
	Cmd  *cobra.Command // may be nil
}

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// UsageErrorIn returns the usage error in err. It returns nil if a file or program that a flag names is
// missing or may not be read: then the command line itself is correct.
func UsageErrorIn(err error) *UsageError {
	var usage *UsageError
	if !errors.As(err, &usage) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	return usage
}

// Usagef is fmt.Errorf for a command line that is wrong.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...), Cmd: cmd}
}

// Arguments requires one argument for each name, and reports missing and surplus ones. A name in
// brackets is optional; a name that ends in "..." takes all following arguments. RUN and ID must
// not be empty: RUN may be the beginning of an id, and the empty text is the beginning of every
// id.
func Arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		var missing []string
		rest := false
		for i, name := range names {
			if i >= len(args) && !strings.HasPrefix(name, "[") {
				missing = append(missing, strings.TrimSuffix(name, "..."))
			}
			if (name == "RUN" || name == "ID") && i < len(args) && args[i] == "" {
				return Usagef(cmd, "%s is empty", name)
			}
			rest = rest || strings.HasSuffix(strings.TrimSuffix(name, "]"), "...")
		}
		switch {
		case len(missing) == 1:
			return Usagef(cmd, "%s is missing", missing[0])
		case len(missing) > 1:
			return Usagef(cmd, "%s are missing", strings.Join(missing, " and "))
		case len(args) > len(names) && !rest:
			return Usagef(cmd, "%q is too much: \"%s\" takes %s", args[len(names)], cmd.CommandPath(), takes(names))
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

// OneOf refuses values that are not in the list.
func OneOf(cmd *cobra.Command, flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return Usagef(cmd, "--%s %q: it is one of %s", flag, value, strings.Join(allowed, ", "))
}

// hintedError is an error with a hint.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// Hinted adds a hint to an error.
func Hinted(err error, format string, args ...any) error {
	return &hintedError{err, fmt.Sprintf(format, args...)}
}

// aboutError is an error of a command that is about an entity.
type aboutError struct {
	error
	entity string
}

func (e *aboutError) Unwrap() error { return e.error }

// About adds the entity that a command is about, which its hints then name.
func About(err error, entity string) error {
	if err == nil {
		return nil
	}
	return &aboutError{err, entity}
}

// ErrQuiet is a failure that has been reported already.
var ErrQuiet = errors.New("failed")

// ErrInterrupted is the error of a command that a signal ended before it was
// done.
var ErrInterrupted = Stopped(context.Canceled, "interrupted")

var unprefixed = strings.NewReplacer(" nats: ", " ", "\nnats: ", "\n")

// Text removes repetitions that come from Go's wrapping of errors.
func Text(err error) string {
	return strings.TrimRight(unprefixed.Replace("\n" + err.Error())[1:], "\n")
}

package outcome

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/near"
)

// flagTakes says what the flags of a type take.
var flagTakes = map[string]string{
	"bool":     "it is true or false",
	"duration": "it is a duration such as 500ms, 5s, 2m or 1h30m",
	"float64":  "it is a number",
	"int":      "it is a whole number",
	"uint64":   "it is a whole number, 0 or more",
}

// WrongFlag is the usage error of a command line that cannot be parsed. Of a value it says what
// the flag takes, where Go's own words are of no use to a user.
func WrongFlag(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return WrongValue(cmd, "--"+invalid.GetFlag().Name, invalid.GetFlag(), invalid.GetValue(), errors.Unwrap(invalid))
	}
	usage := &UsageError{Err: err, Cmd: cmd}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if like := near.Names(unknown.GetSpecifiedName(), names, 1); len(like) > 0 {
			usage.Hint = "Did you mean --" + like[0] + "?"
		}
	}
	return usage
}

// WrongValue is the usage error of a value that f does not take, because of cause. name is where
// the value stands: the flag, or a variable of the environment.
func WrongValue(cmd *cobra.Command, name string, f *pflag.Flag, value string, cause error) error {
	kind := f.Value.Type()
	takes := flagTakes[kind]
	switch {
	case takes == "":
		return Usagef(cmd, "%s %q: %w", name, value, cause)
	case errors.Is(cause, strconv.ErrRange):
		takes = "the number is too large or too small"
	}
	usage := &UsageError{Err: fmt.Errorf("%s %q: %s", name, value, takes), Cmd: cmd}
	if _, err := time.ParseDuration(value + "s"); err == nil && kind == "duration" {
		usage.Hint = "Did you mean " + value + "s?"
	}
	return usage
}

package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
)

// Annotations of flags.
const (
	annotEnv   = "aeemesh.env"   // the environment variable that is the default
	annotGroup = "aeemesh.group" // the section of --help
	annotBrief = "aeemesh.brief" // of --help-all: the common flags, each followed by its short text
)

// Groups of flags in --help, beside a command's own.
const (
	groupConnect = "Connection"
	groupSign    = "Signatures"
	groupGlobal  = "Everywhere"
)

// bindEnv makes an environment variable the default of a flag.
func bindEnv(flags *pflag.FlagSet, name, variable string) {
	f := flags.Lookup(name)
	f.Usage += " [$" + variable + "]"
	if err := flags.SetAnnotation(name, annotEnv, []string{variable}); err != nil {
		panic(err)
	}
}

func inGroup(flags *pflag.FlagSet, group string, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, annotGroup, []string{group}); err != nil {
			panic(err)
		}
	}
}

// connects marks a command as one that connects to NATS, for --help.
func connects(c *cobra.Command) *cobra.Command {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[groupConnect] = "yes"
	return c
}

// fromEnvironment sets flags that were not on the command line from their
// variables. It may be called twice.
func (a *progApp) fromEnvironment(cmd *cobra.Command) error {
	var bad error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names := f.Annotations[annotEnv]
		if len(names) == 0 || f.Changed || bad != nil {
			return
		}
		value := a.env(names[0])
		if value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			bad = &outcome.UsageError{Err: fmt.Errorf("%s: %w", names[0], err), Cmd: cmd}
			return
		}
		a.byEnv[f.Name] = true
	})
	return bad
}

// isSet reports whether a flag has a value from the command line, the environment
// or the configuration file.
func (a *progApp) isSet(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && (f.Changed || a.byEnv[name] || a.byFile[name] != "")
}

// logFlags set the level and the format of the log.
type logFlags struct{ level, format string }

func (a *progApp) addLogFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.levels.level, "log-level", "warn", "what to log on stderr: debug, info, warn or error")
	flags.StringVar(&a.levels.format, "log-format", "text", "how: text or json")
	bindEnv(flags, "log-level", "AEEMESH_LOG_LEVEL")
	bindEnv(flags, "log-format", "AEEMESH_LOG_FORMAT")
}

func (a *progApp) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.levels.level)); err != nil {
		return nil, outcome.Usagef(nil, "--log-level %q: it is debug, info, warn or error", a.levels.level)
	}
	return a.loggerAt(level)
}

// loggerAt returns the program's logger with another level.
func (a *progApp) loggerAt(level slog.Level) (*slog.Logger, error) {
	if log := a.term.Logger(a.levels.format, level); log != nil {
		return log, nil
	}
	return nil, outcome.Usagef(nil, "--log-format %q: it is text or json", a.levels.format)
}

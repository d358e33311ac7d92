package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
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
func (a *app) fromEnvironment(cmd *cobra.Command) error {
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
			bad = &usageError{err: fmt.Errorf("%s: %w", names[0], err), cmd: cmd}
			return
		}
		a.byEnv[f.Name] = true
	})
	return bad
}

// isSet reports whether a flag has a value from the command line, the environment
// or the configuration file.
func (a *app) isSet(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && (f.Changed || a.byEnv[name] || a.byFile[name] != "")
}

// logFlags set the level and the format of the log.
type logFlags struct{ level, format string }

func (a *app) addLogFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.levels.level, "log-level", "warn", "what to log on stderr: debug, info, warn or error")
	flags.StringVar(&a.levels.format, "log-format", "text", "how: text or json")
	bindEnv(flags, "log-level", "AEEMESH_LOG_LEVEL")
	bindEnv(flags, "log-format", "AEEMESH_LOG_FORMAT")
}

func (a *app) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.levels.level)); err != nil {
		return nil, usagef(nil, "--log-level %q: it is debug, info, warn or error", a.levels.level)
	}
	return a.loggerAt(level)
}

// loggerAt returns the program's logger with another level.
func (a *app) loggerAt(level slog.Level) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: withUnits}
	switch strings.ToLower(a.levels.format) {
	case "text":
		return slog.New(slog.NewTextHandler(a.term.words, opts)), nil
	case formatJSON:
		return slog.New(slog.NewJSONHandler(records{a.term.words}, opts)), nil
	}
	return nil, usagef(nil, "--log-format %q: it is text or json", a.levels.format)
}

// withUnits writes durations in JSON as in text, "30s"; slog would write a
// number of nanoseconds.
func withUnits(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

const formatJSON = "json"

// records escapes control characters in a log's JSON, so that it cannot command
// a terminal.
type records struct{ to io.Writer }

func (r records) Write(p []byte) (int, error) {
	if _, err := r.to.Write(plain.JSON(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// recordWords makes messages for people records of the log, if the log is JSON.
// They are written at every level, because they are no diagnostics.
func (a *app) recordWords() {
	if a.term.records == nil && strings.EqualFold(a.levels.format, formatJSON) {
		a.term.records = slog.New(slog.NewJSONHandler(records{a.term.words}, &slog.HandlerOptions{ReplaceAttr: withUnits}))
	}
}

// oneOf refuses values that are not in the list.
func oneOf(cmd *cobra.Command, flag, value string, allowed ...string) error {
	for _, v := range allowed {
		if v == value {
			return nil
		}
	}
	return usagef(cmd, "--%s %q: it is one of %s", flag, value, strings.Join(allowed, ", "))
}

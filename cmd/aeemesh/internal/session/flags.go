package session

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
)

// Annotations of flags.
const (
	AnnotEnv   = "aeemesh.env"   // the environment variable that is the default
	AnnotGroup = "aeemesh.group" // the section of --help
	AnnotBrief = "aeemesh.brief" // of --help-all: the common flags, each followed by its short text
)

// Groups of flags in --help, beside a command's own.
const (
	GroupConnect = "Connection"
	GroupSign    = "Signatures"
	GroupGlobal  = "Everywhere"
)

// BindEnv makes an environment variable the default of a flag.
func BindEnv(flags *pflag.FlagSet, name, variable string) {
	f := flags.Lookup(name)
	f.Usage += " [$" + variable + "]"
	if err := flags.SetAnnotation(name, AnnotEnv, []string{variable}); err != nil {
		panic(err)
	}
}

// InGroup puts flags into a section of --help.
func InGroup(flags *pflag.FlagSet, group string, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, AnnotGroup, []string{group}); err != nil {
			panic(err)
		}
	}
}

// Connects marks a command as one that connects to NATS, for --help.
func Connects(c *cobra.Command) *cobra.Command {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[GroupConnect] = "yes"
	return c
}

// FromEnvironment sets flags that were not on the command line from their
// variables. It may be called twice.
func (a *App) FromEnvironment(cmd *cobra.Command) error {
	var bad error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names := f.Annotations[AnnotEnv]
		if len(names) == 0 || f.Changed || bad != nil {
			return
		}
		value := a.Env(names[0])
		if value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			bad = outcome.WrongValue(cmd, names[0], f, value, err)
			return
		}
		a.ByEnv[f.Name] = true
	})
	return bad
}

// OfVariables names the variable, and not the flag, where a usage error is about a value that the
// environment has set.
func (a *App) OfVariables(cmd *cobra.Command, err error) error {
	var usage *outcome.UsageError
	if !errors.As(err, &usage) {
		return err
	}
	lines := strings.Split(usage.Err.Error(), "\n")
	for i, line := range lines {
		name, ok := strings.CutPrefix(line, "--")
		end := strings.IndexAny(name, " :,")
		if !ok || end <= 0 || !a.ByEnv[name[:end]] {
			continue
		}
		// "config show" reads the flags of another command.
		if f := cmp.Or(usage.Cmd, cmd).Flags().Lookup(name[:end]); f != nil {
			lines[i] = f.Annotations[AnnotEnv][0] + name[end:]
		}
	}
	if text := strings.Join(lines, "\n"); text != usage.Err.Error() {
		usage.Err = &outcome.SaidError{Text: text, Cause: usage.Err}
	}
	return err
}

// IsSet reports whether a flag has a value from the command line, the environment
// or the configuration file.
func (a *App) IsSet(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && (f.Changed || a.ByEnv[name] || a.ByFile[name] != "")
}

// logFlags set the level and the format of the log.
type logFlags struct{ level, Format string }

// AddLogFlags adds the flags of the log.
func (a *App) AddLogFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.Levels.level, "log-level", "warn", "what to log on stderr: debug, info, warn or error")
	flags.StringVar(&a.Levels.Format, "log-format", "text", "how: text or json")
	BindEnv(flags, "log-level", "AEEMESH_LOG_LEVEL")
	BindEnv(flags, "log-format", "AEEMESH_LOG_FORMAT")
}

// Logger returns the log that the flags describe.
func (a *App) Logger() (*slog.Logger, error) {
	level, err := a.Levels.parse()
	if err != nil {
		return nil, err
	}
	return a.LoggerAt(level)
}

// CheckLog returns all that is wrong with the flags of the log.
func (a *App) CheckLog() (bad []error) {
	level, err := a.Levels.parse()
	if err != nil {
		bad = append(bad, err)
	}
	if _, err := a.LoggerAt(level); err != nil {
		bad = append(bad, err)
	}
	return bad
}

func (f *logFlags) parse() (level slog.Level, err error) {
	if level.UnmarshalText([]byte(f.level)) != nil {
		err = outcome.Usagef(nil, "--log-level %q: it is debug, info, warn or error", f.level)
	}
	return level, err
}

// LoggerAt returns the program's logger with another level.
func (a *App) LoggerAt(level slog.Level) (*slog.Logger, error) {
	if log := a.Term.Logger(a.Levels.Format, level); log != nil {
		return log, nil
	}
	return nil, outcome.Usagef(nil, "--log-format %q: it is text or json", a.Levels.Format)
}

package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/bench"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
)

// Exit statuses that do not follow from an error.
const (
	exitOK     = outcome.OK
	exitFailed = outcome.Failed
	exitUsage  = outcome.Usage
)

// app has the commands that are not in a package of their own.
type app struct{ *progApp }

func newApp(stdin io.Reader, stdout, stderr io.Writer, env func(string) string) *app {
	a := &app{&progApp{version: version(), stdin: stdin, env: env, term: term.New(stdout, stderr, env), byEnv: map[string]bool{}}}
	a.telemetry = a.nodeTelemetry
	return a
}

// run executes the program. env looks up an environment variable; it returns ""
// if the variable is not set.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	a := newApp(stdin, stdout, stderr, env)
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.term.Err()
	}
	if err == nil {
		return exitOK
	}
	return a.failed(err, args)
}

// failed prints an error, with --json also as JSON, and returns the exit
// status.
func (a *app) failed(err error, args []string) int {
	o := outcome.Of(err)
	var usage *outcome.UsageError
	if !a.began && !errors.As(err, &usage) {
		err = &outcome.UsageError{Err: err}
	}
	if errors.As(err, &usage) {
		o = outcome.Outcome{Code: outcome.CodeUsage, Exit: outcome.Usage}
		// A wrong command line may have kept --json from being parsed.
		if end := slices.Index(args, "--"); end >= 0 {
			args = args[:end]
		}
		a.term.JSON = a.term.JSON || slices.Contains(args, "--json")
		if f := "--log-format"; slices.Contains(args, f+"=json") || strings.Contains(strings.Join(args, "\n")+"\n", f+"\njson\n") || strings.EqualFold(a.env("AEEMESH_LOG_FORMAT"), term.JSONLog) {
			a.levels.format = term.JSONLog
		}
		a.term.RecordWords(a.levels.format)
	}
	if !errors.Is(err, outcome.ErrQuiet) {
		a.term.Fail(outcome.Text(err), string(o.Code), outcome.Hint(err))
	}
	if !a.term.JSON {
		return o.Exit
	}
	f := outcome.Failure{Code: o.Code, Message: strings.TrimPrefix(outcome.Text(err), string(o.Code)+": "), Hint: outcome.Hint(err)}
	if errors.Is(err, outcome.ErrQuiet) {
		f.Message = "a check failed, or something was not done; what was printed before says which"
	}
	var peer *envelope.Error
	if errors.As(err, &peer) && peer.Code == o.Code {
		f.Retryable, f.BackoffMS = peer.Retryable, peer.BackoffMS
	}
	out := map[string]any{}
	var more *outcome.Detailed
	if errors.As(err, &more) {
		maps.Copy(out, more.Members)
	}
	out["error"] = f
	if a.term.Object(out) != nil {
		return outcome.Failed
	}
	return o.Exit
}

func (a *app) root() *cobra.Command {
	var asked bool // --version was given
	root := &cobra.Command{
		Use:   "aeemesh",
		Short: "A mesh of AI agents on any NATS server",
		Long: `aeemesh turns any NATS server into a mesh of AI agents. An agent is one AAIF
document; its worker subscribes to a NATS subject and speaks AEE envelopes.

Exit statuses: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 refused, 5 timed
out. With --json errors are data too; docs/cli.md has the contract.`,
		Example: `  aeemesh demo                                # see it work, with nothing installed
  aeemesh up                                  # a NATS server with JetStream
  aeemesh worker reviewer.yaml                # host an agent
  aeemesh send agent.reviewer '{"path":"."}'  # give it a task
  aeemesh watch                               # see what goes on`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asked && len(args) == 0 {
				return tellVersion(a.progApp)
			}
			return a.group(cmd, args)
		},
		PersistentPreRunE: a.prepare,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run:"},
		&cobra.Group{ID: "talk", Title: "Talk:"},
		&cobra.Group{ID: "look", Title: "Look:"},
		&cobra.Group{ID: "make", Title: "Documents, envelopes, keys:"},
		&cobra.Group{ID: "misc", Title: "And:"},
	)
	root.SetHelpCommandGroupID("misc")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &outcome.UsageError{Err: err, Cmd: cmd}
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { printHelp(a.progApp, cmd, false) })
	root.SetUsageFunc(func(cmd *cobra.Command) error { printHelp(a.progApp, cmd, false); return nil })
	root.Flags().BoolVar(&asked, "version", false, "print the version, as \"aeemesh version\" does")
	root.PersistentFlags().SortFlags = false
	root.PersistentFlags().BoolVar(&a.term.JSON, "json", false, "print data as JSON: one object, or one a line")
	a.addConnectFlags(root.PersistentFlags())
	a.addLogFlags(root.PersistentFlags())
	for _, group := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{"run", []*cobra.Command{demoCommand(a.progApp), upCommand(a.progApp), a.workerCommand(), handoffCommand(a), planCommand(a.progApp), applyCommand(a.progApp), janitorCommand(a.progApp)}},
		{"talk", []*cobra.Command{sendCommand(a.progApp), askCommand(a.progApp), resultCommand(a.progApp), inboxCommand(a.progApp), answerCommand(a.progApp)}},
		{"look", []*cobra.Command{watchCommand(a.progApp), agentsCommand(a.progApp), queuesCommand(a.progApp), runsCommand(a.progApp), treeCommand(a.progApp), migrateCommand(a.progApp), deadCommand(a.progApp), doctorCommand(a.progApp),
			a.adopt(bench.Command(a.term.Data, a.term.Words)), soakCommand(a.progApp)}},
		{"make", []*cobra.Command{validateCommand(a.progApp), modelsCommand(a), a.manifestCommand(), a.toolsCommand(), configCommand(a), conditionCommand(a.progApp), envelopeCommand(a.progApp), keysCommand(a.progApp), authCommand(a.progApp)}},
		{"misc", []*cobra.Command{healthcheckCommand(a.progApp), versionCommand(a.progApp), completionCommand(a.progApp)}},
	} {
		for _, c := range group.commands {
			c.Flags().SortFlags = false
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(short("ls", agentsListCommand(a.progApp)), short("ps", runsListCommand(a.progApp)))
	registerCompletions(a.progApp, root)
	return root
}

// prepare runs before every command, after its arguments were accepted.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	if err := a.fromEnvironment(cmd); err != nil {
		return err
	}
	if cmd.Annotations[annotSettings] != "" {
		if err := a.fromFile(cmd); err != nil {
			return err
		}
	}
	var err error
	if a.log, err = a.logger(); err == nil {
		a.term.RecordWords(a.levels.format)
	}
	return err
}

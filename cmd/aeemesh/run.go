package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/agents"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/auth"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/bench"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/conditions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/config"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/dead"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/definitions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/demo"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/doctor"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/envelopes"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/inbox"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/keys"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/models"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/operator"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/queues"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/schemas"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/soak"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/tasks"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/telemetry"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/topology"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/traffic"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/template"
)

// app has the commands that are not in a package of their own.
type app struct {
	*session.App
	misread []*config.Problem // what is wrong with the settings in the file of --config
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, env func(string) string) *app {
	a := &app{App: &session.App{Version: version(), Stdin: stdin, Env: env, Term: term.New(stdout, stderr, env), ByEnv: map[string]bool{}}}
	a.StartTelemetry = func(ctx context.Context) (*session.Telemetry, error) {
		tel, err := telemetry.Start(ctx, a.App)
		if err != nil {
			return nil, err
		}
		return tel.OfNode(), nil
	}
	return a
}

// schemaOperator returns what commands about schema templates read from an operator's
// configuration.
func (a *app) schemaOperator() schemas.Operator {
	return schemas.Operator{
		Filler: func(cmd *cobra.Command, config, name string) (template.Model, func(), error) {
			return operator.Filler(a.App, cmd, config, name)
		},
		Learning: func(cmd *cobra.Command, config string, to *learn.Config) (string, error) {
			return operator.Learning(a.App, cmd, config, to)
		},
	}
}

// run executes the program. env looks up an environment variable; it returns ""
// if the variable is not set.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	stdin = session.Interruptible(ctx, stdin)
	a := newApp(stdin, stdout, stderr, env)
	root := a.root()
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		registerCompletions(a.App, root) // registering them takes a tenth of the start-up time
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		a.Began = true // the command line was correct, even if it only asked for help
		err = a.Term.Err()
	}
	if err == nil || a.Term.ReaderGone(err) {
		return outcome.OK
	}
	return a.failed(err, args)
}

// failed prints an error, with --json also as JSON, and returns the exit
// status.
func (a *app) failed(err error, args []string) int {
	o := outcome.Of(err)
	var usage *outcome.UsageError
	if !a.Began && !errors.As(err, &usage) {
		err = &outcome.UsageError{Err: err}
	}
	if outcome.UsageErrorIn(err) != nil {
		o = outcome.Outcome{Code: outcome.CodeUsage, Exit: outcome.Usage}
		// A wrong command line may have kept --json from being parsed.
		if end := slices.Index(args, "--"); end >= 0 {
			args = args[:end]
		}
		a.Term.JSON = a.Term.JSON || slices.Contains(args, "--json")
		if f := "--log-format"; slices.Contains(args, f+"=json") || strings.Contains(strings.Join(args, "\n")+"\n", f+"\njson\n") || strings.EqualFold(a.Env("AEEMESH_LOG_FORMAT"), term.JSONLog) {
			a.Levels.Format = term.JSONLog
		}
		a.Term.RecordWords(a.Levels.Format)
	}
	if !errors.Is(err, outcome.ErrQuiet) {
		a.Term.Fail(outcome.Text(err), string(o.Code), outcome.Hint(err))
	}
	if !a.Term.JSON {
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
	if a.Term.Object(out) != nil {
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
		Example: `  aeemesh demo                                # see it work
  aeemesh up                                  # a NATS server with JetStream
  aeemesh worker reviewer.yaml                # host an agent
  aeemesh send agent.reviewer '{"path":"."}'  # give it a task
  aeemesh watch                               # see what goes on`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asked && len(args) == 0 {
				return tellVersion(a.App)
			}
			return a.Group(cmd, args)
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
	root.SetFlagErrorFunc(outcome.WrongFlag)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { printHelp(a.App, cmd, false) })
	root.SetUsageFunc(func(cmd *cobra.Command) error { printHelp(a.App, cmd, false); return nil })
	root.Flags().BoolVar(&asked, "version", false, "print the version, as \"aeemesh version\" does")
	root.PersistentFlags().SortFlags = false
	root.PersistentFlags().BoolVar(&a.Term.JSON, "json", false, "print data as JSON: one object, or one a line")
	a.AddConnectFlags(root.PersistentFlags())
	a.AddLogFlags(root.PersistentFlags())
	for _, group := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{"run", []*cobra.Command{demo.Command(a.App), upCommand(a.App), a.workerCommand(), handoffCommand(a), topology.PlanCommand(a.App), topology.ApplyCommand(a.App), janitorCommand(a.App)}},
		{"talk", []*cobra.Command{tasks.SendCommand(a.App), tasks.AskCommand(a.App, a.schemaOperator()), tasks.ResultCommand(a.App), inbox.Command(a.App), inbox.AnswerCommand(a.App)}},
		{"look", []*cobra.Command{traffic.Command(a.App), agents.Command(a.App), queues.Command(a.App), schemas.Command(a.App, a.schemaOperator(), tasks.AskCommand(a.App, a.schemaOperator())), runs.Command(a.App), traffic.TreeCommand(a.App), runs.MigrateCommand(a.App), dead.Command(a.App), doctor.Command(a.App),
			a.Adopt(bench.Command(a.Term.Data, a.Term.Words)), soak.Command(a.App)}},
		{"make", []*cobra.Command{definitions.ValidateCommand(a.App), models.Command(a.App), a.manifestCommand(), a.toolsCommand(), configCommand(a), conditions.Command(a.App), envelopes.Command(a.App), keys.Command(a.App), auth.Command(a.App)}},
		{"misc", []*cobra.Command{healthcheckCommand(a.App), versionCommand(a.App), completionCommand(a.App)}},
	} {
		for _, c := range group.commands {
			c.Flags().SortFlags = false
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(session.Short("ls", agents.ListCommand(a.App)), session.Short("ps", runs.ListCommand(a.App)))
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = helpArguments
		}
	}
	return root
}

// helpArguments refuses commands that do not exist: otherwise the program's own help would be
// printed.
func helpArguments(cmd *cobra.Command, args []string) error {
	c, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("unknown command %q for %q", rest[0], c.CommandPath())
	}
	if err != nil {
		return &outcome.UsageError{Err: err, Cmd: c}
	}
	return nil
}

// prepare runs before every command, after its arguments were accepted.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	if err := a.FromEnvironment(cmd); err != nil {
		return err
	}
	if cmd.Annotations[annotSettings] != "" {
		if err := a.fromFile(cmd); err != nil {
			return err
		}
	}
	var err error
	if a.Log, err = a.Logger(); err == nil {
		a.Term.RecordWords(a.Levels.Format)
	} else if cmd.Annotations[annotSettings] != "" {
		a.Log, err = slog.New(slog.DiscardHandler), nil // checkWorker reports it, with all other mistakes
	}
	return a.OfVariables(cmd, err)
}

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

// app is one execution of the program: its streams, its environment, and the
// flags that many commands share.
type app struct {
	stdin  io.Reader
	env    func(string) string
	term   *term.Terminal
	log    *slog.Logger
	began  bool              // a command's own work has begun: errors are no longer of usage
	byEnv  map[string]bool   // flags whose value is from the environment
	byFile map[string]string // flags whose value is from the configuration file, and its place there
	conn   connectFlags
	sign   signFlags
	levels logFlags

	documents   []string // a worker's, that its configuration file names
	stateKeys   []string // references to the keys of checkpoints
	as          string   // the sender, for commands that make their own envelopes
	speaker     string   // the entity of the connection, if known
	platform    string   // this mesh's name for other platforms
	acceptClear bool     // with state keys: accept unsealed checkpoints
	issuers     []string // issuers that may transfer runs of any agent
	anyVersion  bool     // accept runs of any version of their agent
	perIssuer   int      // MiB of handoffs that are kept per issuer; 0: the default
}

// run executes the program. env looks up an environment variable; it returns ""
// if the variable is not set.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	a := &app{stdin: stdin, env: env, term: term.New(stdout, stderr, env), byEnv: map[string]bool{}}
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
				return tellVersion(a)
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
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { printHelp(a, cmd, false) })
	root.SetUsageFunc(func(cmd *cobra.Command) error { printHelp(a, cmd, false); return nil })
	root.Flags().BoolVar(&asked, "version", false, "print the version, as \"aeemesh version\" does")
	root.PersistentFlags().SortFlags = false
	root.PersistentFlags().BoolVar(&a.term.JSON, "json", false, "print data as JSON: one object, or one a line")
	a.addConnectFlags(root.PersistentFlags())
	a.addLogFlags(root.PersistentFlags())
	for _, group := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{"run", []*cobra.Command{demoCommand(a), upCommand(a), a.workerCommand(), handoffCommand(a), planCommand(a), applyCommand(a), janitorCommand(a)}},
		{"talk", []*cobra.Command{sendCommand(a), askCommand(a), resultCommand(a), inboxCommand(a), answerCommand(a)}},
		{"look", []*cobra.Command{watchCommand(a), agentsCommand(a), queuesCommand(a), runsCommand(a), treeCommand(a), migrateCommand(a), deadCommand(a), doctorCommand(a),
			a.adopt(bench.Command(a.term.Data, a.term.Words)), soakCommand(a)}},
		{"make", []*cobra.Command{validateCommand(a), modelsCommand(a), a.manifestCommand(), a.toolsCommand(), configCommand(a), conditionCommand(a), envelopeCommand(a), keysCommand(a), authCommand(a)}},
		{"misc", []*cobra.Command{healthcheckCommand(a), versionCommand(a), completionCommand(a)}},
	} {
		for _, c := range group.commands {
			c.Flags().SortFlags = false
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(short("ls", agentsListCommand(a)), short("ps", runsListCommand(a)))
	registerCompletions(a, root)
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

// do wraps f as a command's function: from its start on, errors are failures
// and not usage errors.
func (a *app) do(f func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
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
func (a *app) adopt(c *cobra.Command) *cobra.Command {
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
func (a *app) group(cmd *cobra.Command, args []string) error {
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
		printHelp(a, cmd, false)
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
func (a *app) holder(c *cobra.Command, children ...*cobra.Command) *cobra.Command {
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

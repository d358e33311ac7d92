package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
)

// Exit statuses, of those that are not told by an error.
const (
	exitOK     = outcome.OK
	exitFailed = outcome.Failed
	exitUsage  = outcome.Usage
)

// app is one run of the program: its streams, its environment, and the flags
// that many commands share.
type app struct {
	stdin  io.Reader
	env    func(string) string
	term   *terminal
	log    *slog.Logger
	began  bool              // a command's own work has begun: errors are no longer of usage
	byEnv  map[string]bool   // flags whose value is from the environment
	byFile map[string]string // flags whose value is from the configuration file, and its place there
	conn   connectFlags
	sign   signFlags
	levels logFlags

	documents   []string // a worker's, that its configuration file names
	stateKeys   []string // references to the keys of checkpoints
	as          string   // who asks, where a command makes its own envelopes
	speaker     string   // who the connection speaks as, where that is known
	platform    string   // this mesh's name, to other platforms
	acceptClear bool     // with state keys: believe what is not sealed
	issuers     []string // who may hand over runs of any agent
	anyVersion  bool     // take in runs of whatever version of their agent
	perIssuer   int      // MiB that are kept of one issuer's handoffs; 0: the default
}

// run is the program. env looks up an environment variable, "" where it is
// not set.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	a := &app{stdin: stdin, env: env, term: newTerminal(stdout, stderr, env), byEnv: map[string]bool{}}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.term.err()
	}
	if err == nil {
		return exitOK
	}
	return a.failed(err, args)
}

func (a *app) root() *cobra.Command {
	var asked bool // for the version
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
				return a.tellVersion(cmd, args)
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
		return &usageError{err: err, cmd: cmd}
	})
	root.SetHelpFunc(a.help)
	root.SetUsageFunc(func(cmd *cobra.Command) error { a.help(cmd, nil); return nil })
	root.Flags().BoolVar(&asked, "version", false, "print the version, as \"aeemesh version\" does")
	root.PersistentFlags().SortFlags = false
	root.PersistentFlags().BoolVar(&a.term.json, "json", false, "print data as JSON: one object, or one a line")
	a.addConnectFlags(root.PersistentFlags())
	a.addLogFlags(root.PersistentFlags())
	for _, group := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{"run", []*cobra.Command{a.demoCommand(), a.upCommand(), a.workerCommand(), a.handoffCommand(), a.planCommand(), a.applyCommand(), a.janitorCommand()}},
		{"talk", []*cobra.Command{a.sendCommand(), a.askCommand(), a.resultCommand(), a.inboxCommand(), a.answerCommand()}},
		{"look", []*cobra.Command{a.watchCommand(), a.agentsCommand(), a.queuesCommand(), a.runsCommand(), a.treeCommand(), a.migrateCommand(), a.deadCommand(), a.doctorCommand(),
			a.adopt(newBenchCommand(a.term.data, a.term.words)), a.soakCommand()}},
		{"make", []*cobra.Command{a.validateCommand(), a.modelsCommand(), a.manifestCommand(), a.toolsCommand(), a.configCommand(), a.conditionCommand(), a.envelopeCommand(), a.keysCommand(), a.authCommand()}},
		{"misc", []*cobra.Command{a.healthcheckCommand(), a.versionCommand(), a.completionCommand()}},
	} {
		for _, c := range group.commands {
			c.Flags().SortFlags = false
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(short("ls", a.agentsListCommand()), short("ps", a.runsListCommand()))
	a.registerCompletions(root)
	return root
}

// prepare runs before every command, when its arguments have been accepted.
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
		a.recordWords()
	}
	return err
}

// do makes a command's own function of f: from its first line on, errors are
// failures and no longer wrong usage.
func (a *app) do(f func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.began = true
		err := f(cmd.Context(), cmd, args)
		var usage *usageError
		if errors.As(err, &usage) && usage.cmd == nil {
			usage.cmd = cmd // whose help tells more
		}
		return err
	}
}

// adopt makes a command whose functions know nothing of do one of this program's.
func (a *app) adopt(c *cobra.Command) *cobra.Command {
	if inner := c.RunE; inner != nil {
		c.RunE = a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			err := inner(cmd, args)
			switch {
			case err == nil || ctx.Err() == nil:
				return err
			case cmd.Hidden: // a child, whose parent says it
				return errQuiet
			}
			return errInterrupted
		})
	}
	for _, child := range c.Commands() {
		a.adopt(child)
	}
	return c
}

// group is what a command does that only holds other commands: alone it lists, if
// it has a list, and else shows its help.
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
		a.help(cmd, nil)
		return nil
	}
	err := &usageError{err: errorf("unknown command %q for %q", args[0], cmd.CommandPath()), cmd: cmd}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err.hint = "Did you mean \"" + cmd.CommandPath() + " " + near[0] + "\"?"
	}
	return err
}

// holder makes a command that only holds others.
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

// short is another command under a short name that those who know other tools
// type.
func short(name string, c *cobra.Command) *cobra.Command {
	c.Use, c.Hidden = strings.Replace(c.Use, c.Name(), name, 1), true
	return c
}

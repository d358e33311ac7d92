package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

func completionCommand(a *session.App) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for a shell",
		Long: `Prints a script that makes a shell complete commands and flags, and also the
entities that are there now, their intents, what their tasks have to hold, NATS
contexts and your keys.`,
		Example: `  source <(aeemesh completion bash)
  aeemesh completion bash > /etc/bash_completion.d/aeemesh
  aeemesh completion zsh > "${fpath[1]}/_aeemesh"
  aeemesh completion fish > ~/.config/fish/completions/aeemesh.fish
  aeemesh completion powershell | Out-String | Invoke-Expression`,
		Args:      cobra.MatchAll(outcome.Arguments("SHELL"), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), a.Term.Data
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			default:
				return root.GenPowerShellCompletionWithDesc(out)
			}
		}),
	}
}

// completeWait is how long a shell waits for a completion.
const completeWait = 700 * time.Millisecond

// completeEntities completes the first n arguments with the entities that
// currently answer.
func completeEntities(a *session.App, n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveDefault // @FILE
		}
		return liveEntities(a, cmd), cobra.ShellCompDirectiveNoFileComp
	}
}

func liveEntities(a *session.App, cmd *cobra.Command) (out []string) {
	toComplete(a, cmd, func(ctx context.Context, conn *nats.Conn) {
		node, err := mesh.New(conn, mesh.Config{Prefix: a.Conn.Prefix})
		if err != nil {
			return
		}
		found, _ := node.Discover(ctx, "", completeWait)
		for _, i := range found {
			out = append(out, cobra.CompletionWithDesc(i.Entity, term.Printable(i.Info.Description)))
		}
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// completeServed completes the first n arguments with the agents that have had
// durable tasks, whether or not they have a running worker.
func completeServed(a *session.App, n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		toComplete(a, cmd, func(ctx context.Context, conn *nats.Conn) {
			m, err := a.Subjects()
			if err != nil {
				return
			}
			js, err := a.JetStream(conn)
			if err != nil {
				return
			}
			list, _ := jetstream.NewQueue(js, m).Backlog(ctx)
			for _, b := range list {
				out = append(out, cobra.CompletionWithDesc(b.Entity, term.Counted(b.Pending()+b.Unacked(), "task", "tasks")))
			}
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completing makes a completion function of a command's own.
func completing[A any](a A, complete func(a A, cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		return complete(a, cmd, args, begun)
	}
}

// toComplete connects for a completion, with a short timeout.
func toComplete(a *session.App, cmd *cobra.Command, do func(context.Context, *nats.Conn)) {
	if a.FromEnvironment(cmd) != nil {
		return
	}
	c, err := a.Connection(cmd)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*completeWait)
	defer cancel()
	c.Wait, c.Name = completeWait, "aeemesh completion"
	conn, err := natsconn.Connect(ctx, c)
	if err != nil {
		return
	}
	defer conn.Close()
	do(ctx, conn)
}

// completeRuns completes the first argument with runs, the latest first; runs
// that cannot be listed in time are left out.
func completeRuns(a *session.App, cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completeByRun(a, cmd, args, begun, func(r runSummary) string { return r.Run })
}

// completeTasks completes the first argument with the tasks that have runs, and
// the second with the agents that have had durable tasks.
func completeTasks(a *session.App, cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return completeServed(a, 2)(cmd, args, begun)
	}
	return completeByRun(a, cmd, args, begun, func(r runSummary) string { return r.Task })
}

// completeDead completes all arguments with the numbers of dead letters, the latest
// first.
func completeDead(a *session.App, cmd *cobra.Command, args []string, begun string) (out []string, _ cobra.ShellCompDirective) {
	const most = 200
	toComplete(a, cmd, func(ctx context.Context, conn *nats.Conn) {
		m, err := a.Subjects()
		if err != nil {
			return
		}
		js, err := a.JetStream(conn)
		if err != nil {
			return
		}
		for l, err := range jetstream.NewDead(js, m).List(ctx, "") {
			if err != nil {
				return
			}
			if n := strconv.FormatUint(l.Seq, 10); strings.HasPrefix(n, begun) && !slices.Contains(args, n) {
				out = append(out, cobra.CompletionWithDesc(n, term.Printable(l.Entity+": "+l.Code)))
			}
		}
	})
	slices.Reverse(out)
	return out[:min(most, len(out))], cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func completeByRun(a *session.App, cmd *cobra.Command, args []string, begun string, name func(runSummary) string) ([]string, cobra.ShellCompDirective) {
	const most = 200
	const as = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	if len(args) > 0 {
		return nil, as
	}
	var list []runSummary
	toComplete(a, cmd, func(ctx context.Context, conn *nats.Conn) {
		m, err := a.Subjects()
		if err != nil {
			return
		}
		js, err := a.JetStream(conn)
		if err != nil {
			return
		}
		entity, _ := cmd.Flags().GetString("entity")
		for rec, err := range jetstream.NewStates(js, m).List(ctx, entity) {
			if err != nil {
				return
			}
			if s := summarize(rec); name(s) != "" && strings.HasPrefix(name(s), begun) {
				list = append(list, s)
			}
		}
	})
	slices.SortFunc(list, latestFirst)
	var out []string
	for _, l := range list[:min(most, len(list))] {
		out = append(out, cobra.CompletionWithDesc(name(l), term.Printable(l.Entity+" "+l.Status+" "+ago(l.At))))
	}
	return out, as
}

func completeKeys(a *session.App, cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if a.FromEnvironment(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.KeyIDs(), cobra.ShellCompDirectiveNoFileComp
}

// registerCompletions registers completions for the values of flags, on all
// commands.
func registerCompletions(a *session.App, c *cobra.Command) {
	values := func(list ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
	}
	priorities := []string{}
	for _, p := range envelope.Priorities {
		priorities = append(priorities, string(p))
	}
	languages := make([]cobra.Completion, len(languageHints))
	for i, l := range languageHints {
		languages[i] = cobra.CompletionWithDesc(string(l.lang), l.hint)
	}
	known := map[string]cobra.CompletionFunc{
		"lang": cobra.FixedCompletions(languages, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder),
		"context": func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return a.Env.Contexts(), cobra.ShellCompDirectiveNoFileComp
		},
		"sign":              completing(a, completeKeys),
		"intent":            completing(a, completeIntents),
		"entity":            completeEntities(a, 0),
		"signatures":        values("off", "verify-if-present", "required"),
		"replay-scope":      values("auto", "process", "mesh"),
		"priority":          values(priorities...),
		"type":              values("task", "result", "event", "error", "stream"),
		"decision-evidence": values("none", "minimal", "standard", "full"),
		"log-level":         values("debug", "info", "warn", "error"),
		"log-format":        values("text", "json"),
		"task-events":       values("all", "failures"),
		"journal":           values("auto", "memory", "jetstream"),
		"durable":           values("auto", "on", "off"),
		"status":            values(runStatuses...),
		"to":                values("json", "cbor"),
		"alg":               values("ed25519", "hs256"),
		"sync":              values("always", "2m"),
	}
	for name, f := range known {
		if flag := c.Flag(name); flag != nil && flag.Value.Type() != "bool" && c.InheritedFlags().Lookup(name) == nil {
			if err := c.RegisterFlagCompletionFunc(name, f); err != nil {
				panic(err)
			}
		}
	}
	for _, child := range c.Commands() {
		registerCompletions(a, child)
	}
}

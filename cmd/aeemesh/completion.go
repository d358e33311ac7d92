package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/conditions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/envelopes"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
)

func completionCommand(a *session.App) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for a shell",
		Long: `Prints a script that makes a shell complete commands and flags, and also the
entities that answer now, their intents, the members of their tasks, NATS
contexts and your keys. The script for bash needs the package bash-completion.`,
		Example: `  source <(aeemesh completion bash)
  aeemesh completion bash > /etc/bash_completion.d/aeemesh
  aeemesh completion zsh > "${fpath[1]}/_aeemesh"
  aeemesh completion fish > ~/.config/fish/completions/aeemesh.fish
  aeemesh completion powershell | Out-String | Invoke-Expression`,
		Args:      outcome.Arguments("SHELL"),
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
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return outcome.Usagef(cmd, "%q: SHELL is one of %s", args[0], strings.Join(cmd.ValidArgs, ", "))
		}),
	}
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
	languages := make([]cobra.Completion, len(conditions.LanguageHints))
	for i, l := range conditions.LanguageHints {
		languages[i] = cobra.CompletionWithDesc(string(l.Lang), l.Hint)
	}
	known := map[string]cobra.CompletionFunc{
		"lang": cobra.FixedCompletions(languages, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder),
		"context": func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return a.Env.Contexts(), cobra.ShellCompDirectiveNoFileComp
		},
		"sign":              session.Completing(a, completeKeys),
		"intent":            session.Completing(a, envelopes.CompleteIntents),
		"entity":            session.CompleteEntities(a, 0),
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
		"status":            values(runs.Statuses...),
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

package runs

import (
	"context"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// CompleteRuns completes the first argument with runs, the latest first; runs
// that cannot be listed in time are left out.
func CompleteRuns(a *session.App, cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completeByRun(a, cmd, args, begun, func(r summary) string { return r.Run })
}

// CompleteTasks completes the first argument with the tasks that have runs, and
// the second with the agents that have had durable tasks.
func CompleteTasks(a *session.App, cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return session.CompleteServed(a, 2)(cmd, args, begun)
	}
	return completeByRun(a, cmd, args, begun, func(r summary) string { return r.Task })
}

func completeByRun(a *session.App, cmd *cobra.Command, args []string, begun string, name func(summary) string) ([]string, cobra.ShellCompDirective) {
	const most = 200
	const as = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	if len(args) > 0 {
		return nil, as
	}
	var list []summary
	session.StreamsToComplete(a, cmd, func(ctx context.Context, js natsjs.JetStream, m subject.Map) {
		entity, _ := cmd.Flags().GetString("entity")
		for rec, err := range jetstream.NewStates(js, m).Latest(ctx, entity, nil) {
			if err != nil || len(list) == most {
				return
			}
			if s := summarize(rec); name(s) != "" && strings.HasPrefix(name(s), begun) {
				list = append(list, s)
			}
		}
	})
	sorted.By(list, latestFirst)
	var out []string
	for _, l := range list[:min(most, len(list))] {
		out = append(out, cobra.CompletionWithDesc(name(l), term.Printable(l.Entity+" "+l.Status+" "+term.Ago(l.At))))
	}
	return out, as
}

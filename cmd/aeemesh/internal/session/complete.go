package session

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// CompletionWait is how long a shell waits for a completion.
const CompletionWait = 700 * time.Millisecond

// Completing makes a completion function of a command's own.
func Completing[A any](a A, complete func(a A, cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		return complete(a, cmd, args, begun)
	}
}

// ToComplete connects for a completion, with a short timeout.
func ToComplete(a *App, cmd *cobra.Command, do func(context.Context, *nats.Conn)) {
	if a.FromEnvironment(cmd) != nil {
		return
	}
	c, err := a.connection(cmd)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*CompletionWait)
	defer cancel()
	c.Wait, c.Name = CompletionWait, "aeemesh completion"
	conn, err := natsconn.Connect(ctx, c)
	if err != nil {
		return
	}
	defer conn.Close()
	do(ctx, conn)
}

// StreamsToComplete is [ToComplete] for what JetStream has.
func StreamsToComplete(a *App, cmd *cobra.Command, do func(context.Context, natsjs.JetStream, subject.Map)) {
	ToComplete(a, cmd, func(ctx context.Context, conn *nats.Conn) {
		if js, m, err := a.Streams(conn); err == nil {
			do(ctx, js, m)
		}
	})
}

// CompleteEntities completes the first n arguments with the entities that
// currently answer.
func CompleteEntities(a *App, n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveDefault // @FILE
		}
		return LiveEntities(a, cmd), cobra.ShellCompDirectiveNoFileComp
	}
}

// LiveEntities are the completions of the entities that currently answer.
func LiveEntities(a *App, cmd *cobra.Command) (out []string) {
	ToComplete(a, cmd, func(ctx context.Context, conn *nats.Conn) {
		node, err := mesh.New(conn, mesh.Config{Prefix: a.Conn.Prefix})
		if err != nil {
			return
		}
		found, _ := node.Discover(ctx, "", CompletionWait)
		for _, i := range found {
			out = append(out, cobra.CompletionWithDesc(i.Entity, term.Printable(i.Info.Description)))
		}
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// CompleteServed completes the first n arguments with the agents that have had
// durable tasks, whether or not they have a running worker.
func CompleteServed(a *App, n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		StreamsToComplete(a, cmd, func(ctx context.Context, js natsjs.JetStream, m subject.Map) {
			list, _ := jetstream.NewQueue(js, m).Backlog(ctx)
			for _, b := range list {
				out = append(out, cobra.CompletionWithDesc(b.Entity, term.Counted(b.Pending()+b.Unacked(), "task", "tasks")))
			}
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

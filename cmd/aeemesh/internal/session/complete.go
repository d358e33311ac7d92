package session

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

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
	c, err := a.Connection(cmd)
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

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/mesh/subject"
)

func (a *app) askCommand() *cobra.Command {
	var from string
	c := connects(&cobra.Command{
		Use:   "ask ENTITY TEXT...",
		Short: "Ask an agent in plain text",
		Long: `Sends plain text to an agent and prints the plain text of its answer: the lane
aee.ask, which needs no envelope. Nothing proves who asks, so a worker that
requires signatures refuses it. "-" reads the text from standard input.`,
		Example: `  aeemesh ask agent.writer "a haiku about queues"
  git diff | aeemesh ask agent.reviewer -

  # the same with the nats CLI:
  nats req aee.ask.agent.writer "a haiku about queues" --timeout 1m`,
		Args:              arguments("ENTITY", "TEXT..."),
		ValidArgsFunction: a.completeEntities(1),
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := subject.ValidateEntity(args[0]); err != nil {
				return usagef(cmd, "%w", err)
			}
			text := strings.Join(args[1:], " ")
			if text == "-" {
				b, err := a.readFile("-", maxInput)
				if err != nil {
					return err
				}
				text = strings.TrimRight(string(b), "\r\n")
			}
			if from == "" {
				from = a.defaultFrom()
			}
			s, err := a.open(ctx, cmd, sessionOptions{entity: from})
			if err != nil {
				return err
			}
			defer s.close()
			if a.conn.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, a.conn.timeout)
				defer cancel()
			}
			a.term.progress("asking %s", args[0])
			started := time.Now()
			waiting, stopWondering := a.wonder(ctx, s.node, args[0])
			answer, err := s.node.Ask(waiting, args[0], text)
			stopWondering()
			if err != nil {
				return withMember(sendFailed(ctx, err), "entity", args[0])
			}
			if a.term.json {
				return a.term.object(map[string]any{"entity": args[0], "text": answer, "ms": time.Since(started).Milliseconds()})
			}
			a.term.line("%s", strings.TrimSuffix(answer, "\n"))
			return nil
		}),
	})
	c.Flags().StringVar(&from, "from", "", "who asks: an `entity` (default human.<your login>)")
	bindEnv(c.Flags(), "from", "AEEMESH_FROM")
	return c
}

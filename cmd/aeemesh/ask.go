package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

func askCommand(a *progApp) *cobra.Command {
	var from string
	var retries int
	c := connects(&cobra.Command{
		Use:   "ask ENTITY TEXT...",
		Short: "Ask an agent in plain text",
		Long: `Sends plain text to an agent and prints the plain text of its answer: the lane
aee.ask, which needs no envelope. Nothing proves who asks, so a worker that
requires signatures refuses it: --sign KID sends the text as a signed task
instead. "-" reads the text from standard input.`,
		Example: `  aeemesh ask agent.writer "a haiku about queues"
  aeemesh ask agent.safe "is it me?" --sign ada
  git diff | aeemesh ask agent.reviewer -

  # the same with the nats CLI:
  nats req aee.ask.agent.writer "a haiku about queues" --timeout 1m`,
		Args:              outcome.Arguments("ENTITY", "TEXT..."),
		ValidArgsFunction: completeEntities(a, 1),
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := subject.ValidateEntity(args[0]); err != nil {
				return outcome.Usagef(cmd, "%w", err)
			}
			text := strings.Join(args[1:], " ")
			if text == "-" {
				b, err := a.readFile("-", maxInput)
				if err != nil {
					return err
				}
				text = strings.TrimRight(string(b), "\r\n")
			}
			if retries < 0 {
				return outcome.Usagef(cmd, "--retries %d: it cannot be negative", retries)
			}
			if from == "" {
				from = a.defaultFrom()
			}
			s, err := a.open(ctx, cmd, sessionOptions{entity: from, signed: true})
			if err != nil {
				return err
			}
			defer s.close()
			if a.conn.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, a.conn.timeout)
				defer cancel()
			}
			a.term.Progress("asking %s", args[0])
			started := time.Now()
			waiting, stopWondering := watchWait(a, ctx, s.node, args[0])
			answer, err := askAgent(s, waiting, args[0], text, mesh.SendOptions{Retries: retries, OnRetry: onRetry(a, cmd, retries)})
			stopWondering()
			if err != nil {
				return outcome.WithMember(unanswered(s, ctx, args[0], err), "entity", args[0])
			}
			if a.term.JSON {
				return a.term.Object(map[string]any{"entity": args[0], "text": answer, "ms": time.Since(started).Milliseconds()})
			}
			a.term.Line("%s", strings.TrimSuffix(answer, "\n"))
			return nil
		}),
	})
	c.Flags().StringVar(&from, "from", "", "who asks: an `entity` (default human.<your login>)")
	bindEnv(c.Flags(), "from", "AEEMESH_FROM")
	addRetryFlag(a, c.Flags(), &retries)
	a.addSignFlags(c.Flags(), signAll)
	unsigned := c.Flags().Lookup("sign")
	unsigned.DefValue = signNone
	unsigned.Usage = "sign with the key of this `kid`, as a task; auto: one that may speak for whoever asks, if there is one; none: plain text [$AEEMESH_SIGN]"
	c.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if !a.isSet(cmd, "sign") {
			a.sign.kid = signNone
		}
		return nil
	}
	return c
}

// askAgent sends a plain text question, or, if there is a key to sign with, a signed
// task.
func askAgent(s *session, ctx context.Context, entity, text string, opts mesh.SendOptions) (string, error) {
	signer, err := s.app.signer(s.node.Entity())
	if err != nil {
		return "", err
	}
	if signer == nil {
		return s.node.AskRetrying(ctx, entity, text, opts.Retries, opts.OnRetry)
	}
	payload := append(envelope.AppendString([]byte(`{"text":`), strings.ToValidUTF8(text, "\uFFFD")), '}')
	reply, err := s.node.Send(ctx, envelope.New(envelope.TypeTask, s.node.Entity(), entity, intents.AgentAsk, payload), opts)
	if err != nil {
		return "", err
	}
	if text, ok := term.TextOf(reply.Payload); ok {
		return text, nil
	}
	return string(reply.Payload), nil
}

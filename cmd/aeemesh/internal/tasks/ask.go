package tasks

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/await"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/schemas"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// AskCommand returns "aeemesh ask".
func AskCommand(a *session.App, o schemas.Operator) *cobra.Command {
	var filling schemas.Filling
	var from string
	var retries int
	c := session.Connects(&cobra.Command{
		Use:   "ask ENTITY TEXT...",
		Short: "Ask an agent in plain text",
		Long: `Sends plain text to an agent and prints the plain text of its answer: the lane
aee.ask, which needs no envelope. Nothing proves the sender, so a worker that
requires signatures refuses it: --sign KID sends the text as a signed task
instead. --signatures required sends it as a task, too, and the answer must be
signed. "-" reads the text from standard input.

With --model, the text is not sent: that model fills in the schema template that
the agent publishes ("aeemesh schema show ENTITY"), and the agent gets the
values. What fits no key of the template goes to its key "other". A model that
AEEMESH_MODEL names is for agents that publish templates; others get the text.
With --scenario and no ENTITY, the agent that has the scenario is asked.`,
		Example: `  aeemesh ask agent.writer "a haiku about queues"
  aeemesh ask agent.safe "is it me?" --sign ada
  git diff | aeemesh ask agent.reviewer -
  aeemesh ask agent.flights "two to Lisbon on 2027-03-01" --model openai/gpt-4o --show
  aeemesh ask agent.flights "two to Lisbon" --model builtin/filler --dry-run
  aeemesh ask --scenario flight_booking "two to Lisbon" --model builtin/filler

  # the same with the nats CLI:
  nats req aee.ask.agent.writer "a haiku about queues" --timeout 1m`,
		Args: func(cmd *cobra.Command, args []string) error {
			if filling.Anyone(args) {
				return nil
			}
			return outcome.Arguments("ENTITY", "TEXT...")(cmd, args)
		},
		ValidArgsFunction: session.CompleteEntities(a, 1),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			anyone := filling.Anyone(args)
			if anyone {
				args = []string{"", args[0]}
			} else if err := subject.ValidateEntity(args[0]); err != nil {
				return outcome.Usagef(cmd, "%w", err)
			}
			text, err := a.Text(args[1:])
			if err != nil {
				return err
			}
			if retries < 0 {
				return outcome.Usagef(cmd, "--retries %d: it cannot be negative", retries)
			}
			if err := filling.Check(a, cmd); err != nil {
				return err
			}
			o := session.Options{Entity: cmp.Or(from, a.DefaultFrom()), Signed: true}
			if filling.Durable {
				o.Config = a.LaneClient(cmd)
			}
			s, err := a.Open(ctx, cmd, o)
			if err != nil {
				return err
			}
			defer s.Close()
			if a.Conn.Timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, a.Conn.Timeout)
				defer cancel()
			}
			opts := mesh.SendOptions{Retries: retries, OnRetry: onRetry(a, cmd, retries)}
			filling.Send = opts
			if anyone {
				if args[0], err = filling.Agent(ctx, cmd, a, s); err != nil {
					return err
				}
			}
			fills, err := filling.Wanted(ctx, s, args[0])
			if fills {
				err = filling.Ask(ctx, cmd, s, args[0], text)
			}
			if err != nil {
				return outcome.WithMember(err, "entity", args[0])
			}
			if fills {
				return nil
			}
			plainUnlessAsked(a, cmd)
			a.Term.Progress("asking %s", args[0])
			started := time.Now()
			waiting, stopWondering := await.Watch(ctx, a, s.Node, args[0], &opts)
			answer, plain, err := askAgent(s, waiting, args[0], text, opts)
			stopWondering()
			if err != nil {
				failed := await.Unanswered(ctx, s, args[0], err)
				if plain && errors.Is(ctx.Err(), context.Canceled) && !outcome.NotBegun(err) {
					failed = outcome.Stopped(ctx.Err(), "interrupted; the agent goes on: plain text cannot be cancelled")
				}
				return outcome.WithMember(failed, "entity", args[0])
			}
			if a.Term.JSON {
				return a.Term.Object(map[string]any{"entity": args[0], "text": answer, "ms": time.Since(started).Milliseconds()})
			}
			a.Term.Line("%s", strings.TrimSuffix(answer, "\n"))
			return nil
		}),
	})
	c.Flags().StringVar(&from, "from", "", "who asks: an `entity` (default human.<your login>)")
	session.BindEnv(c.Flags(), "from", "AEEMESH_FROM")
	addRetryFlag(c.Flags(), &retries)
	filling.Add(c.Flags(), o)
	a.AddSignFlags(c.Flags(), session.SignAll)
	unsigned := c.Flags().Lookup("sign")
	unsigned.DefValue = session.SignNone
	unsigned.Usage = "sign with the key of this `kid`, as a task; auto: one that may speak for the asking entity, if there is one (default with --model); none: plain text [$AEEMESH_SIGN]"
	c.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if filling.Model == "" {
			plainUnlessAsked(a, cmd)
		}
		return nil
	}
	return c
}

// plainUnlessAsked leaves a question unsigned, so that it goes as plain text, unless --sign or
// the environment says otherwise.
func plainUnlessAsked(a *session.App, cmd *cobra.Command) {
	if !a.IsSet(cmd, "sign") {
		a.Sign.Kid = session.SignNone
	}
}

// askAgent sends a plain text question, or, if there is a key to sign with or answers must be
// signed, a task. plain reports which it was.
func askAgent(s *session.Session, ctx context.Context, entity, text string, opts mesh.SendOptions) (answer string, plain bool, err error) {
	signer, err := s.App.Signer(s.Node.Entity())
	if err != nil {
		return "", false, err
	}
	if signer == nil && s.App.Sign.Mode != sign.Required.String() {
		answer, err = s.Node.AskRetrying(ctx, entity, text, opts)
		return answer, true, err
	}
	payload := append(envelope.AppendString([]byte(`{"text":`), strings.ToValidUTF8(text, "\uFFFD")), '}')
	reply, err := s.Node.Send(ctx, envelope.New(envelope.TypeTask, s.Node.Entity(), entity, intents.AgentAsk, payload), opts)
	if err != nil {
		return "", false, err
	}
	if text, ok := term.TextOf(reply.Payload); ok {
		return text, false, nil
	}
	return string(reply.Payload), false, nil
}

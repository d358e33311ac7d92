package agents

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/micro"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/await"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
)

func pingCommand(a *session.App) *cobra.Command {
	var count int
	var interval time.Duration
	var instance string
	c := session.Connects(&cobra.Command{
		Use:   "ping ENTITY",
		Short: "Check that an agent answers",
		Long: `Sends aee.status.ping and prints how long the answer took. A busy agent answers
too: its work does not delay the answer. One worker of the agent answers; with
--instance this one does, and says where it runs.`,
		Example: `  aeemesh agents ping agent.reviewer
  aeemesh agents ping agent.reviewer --instance QOY2xPTN8lxRpyVUwFBbWf   # "agents describe" lists them
  aeemesh agents ping agent.reviewer --count 10 --interval 200ms

  # with the nats CLI:
  nats micro ping agent-reviewer`,
		Args:              outcome.Arguments("ENTITY"),
		ValidArgsFunction: session.CompleteEntities(a, 1),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := subject.ValidateEntity(args[0]); err != nil {
				return outcome.Usagef(cmd, "%w", err)
			}
			if count < 1 {
				return outcome.Usagef(cmd, "--count %d: it must be at least 1", count)
			}
			s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Signed: true})
			if err != nil {
				return err
			}
			defer s.Close()
			for n := range count {
				if n > 0 && !pause.For(ctx, interval) {
					return outcome.ErrInterrupted
				}
				turn, cancel := context.WithTimeout(ctx, a.Conn.Wait())
				p, err := ping(s, turn, args[0], instance)
				cancel()
				if ctx.Err() != nil {
					return outcome.ErrInterrupted
				}
				if err != nil {
					return await.Unanswered(ctx, s, args[0], err)
				}
				if a.Term.JSON {
					if err := a.Term.Object(p); err != nil {
						return err
					}
					continue
				}
				a.Term.Line("%s answered in %v%s", args[0], p.took.Round(10*time.Microsecond), p.from())
			}
			return nil
		}),
	})
	c.Flags().IntVar(&count, "count", 1, "how often")
	c.Flags().DurationVar(&interval, "interval", time.Second, "pause between two")
	c.Flags().StringVar(&instance, "instance", "", "`id` of the worker to ask (default any)")
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

// pong is the answer to a ping.
type pong struct {
	Entity   string  `json:"entity"`
	MS       float64 `json:"ms"`
	Instance string  `json:"instance,omitempty"` // this and the rest: with --instance
	Host     string  `json:"host,omitempty"`
	PID      string  `json:"pid,omitempty"`
	Program  string  `json:"aeemesh_version,omitempty"`

	took time.Duration
}

// from names the worker that answered, if it is known.
func (p pong) from() string {
	switch {
	case p.Instance == "":
		return ""
	case p.Host == "":
		return ", instance " + p.Instance
	}
	return fmt.Sprintf(", instance %s, process %s on %s", p.Instance, p.PID, p.Host)
}

// ping sends a ping to an agent, or to one worker of it.
func ping(s *session.Session, ctx context.Context, entity, instance string) (pong, error) {
	p := pong{Entity: entity, Instance: instance}
	var err error
	if instance == "" {
		started := time.Now()
		err = workers.Ask(ctx, s.Node, entity, intents.StatusPing, nil)
		p.took = time.Since(started)
	} else {
		var answer micro.Ping
		answer, p.took, err = s.Node.PingInstance(ctx, entity, instance)
		p.Host, p.PID, p.Program = answer.Metadata[worker.MetaHost], answer.Metadata[worker.MetaPID], answer.Metadata[metaProgram]
	}
	p.MS = float64(p.took.Microseconds()) / 1000
	return p, err
}

package schemas

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream"
)

func listCommand(a *session.App) *cobra.Command {
	var scenario string
	var wait time.Duration
	var stored bool
	c := session.Connects(&cobra.Command{
		Use:   "list [ENTITY]",
		Short: "List the scenarios for which agents have templates",
		Long: `Lists the scenarios of the agents that answer, with the current version of each
template. --scenario says who can do one; if no agent can, the exit status is 3.`,
		Example: `  aeemesh schema list
  aeemesh schema list agent.flights
  aeemesh schema list --scenario flight_booking --json | jq -r .entity`,
		Args: outcome.Arguments("[ENTITY]"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if wait <= 0 {
				return outcome.Usagef(cmd, "--wait %v: it is more than 0", wait)
			}
			entity := strings.Join(args, "")
			if entity != "" {
				if err := checkEntity(cmd, entity); err != nil {
					return err
				}
			}
			return withNode(a, ctx, cmd, func(ctx context.Context, s *session.Session) error {
				offers, err := sdsi.NewClient(s.Node).Find(ctx, entity, scenario, wait)
				if stored && (err == nil || errors.Is(err, sdsi.ErrNotOffered)) {
					offers, err = withStored(ctx, a, s, offers, entity, scenario, err)
				}
				if err != nil {
					return notFound(ctx, err)
				}
				if len(offers) == 0 && !a.Term.JSON {
					a.Term.Say("no agent publishes templates")
					a.Term.Hint("\"aeemesh worker FILE --templates DIR\" does, and so does an agent whose document has io.input_schema.")
					return nil
				}
				return term.List(a.Term, []string{"scenario", "entity", "workers", "schema_id", "languages", "description"}, offers, offerCells)
			})
		}),
	})
	c.Flags().StringVar(&scenario, "scenario", "", "only this `scenario`: who can do it?")
	c.Flags().DurationVar(&wait, "wait", time.Second, "how long to wait for answers")
	c.Flags().BoolVar(&stored, "stored", false, "also agents that do not answer, by what they have published: durable tasks wait for them")
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

// maxCell bounds, in bytes, an agent's text in a table cell: a long one would widen the column of
// every row. JSON output has the whole text.
const maxCell = 256

func offerCells(o sdsi.Offer) []string {
	cells := []string{o.Scenario, o.Entity, strconv.Itoa(o.Workers), o.SchemaID, strings.Join(o.Languages, ","), o.Description}
	for i, c := range cells {
		cells[i] = clip.Text(c, maxCell)
	}
	return cells
}

// notFound returns the error of looking for agents.
func notFound(ctx context.Context, err error) error {
	if errors.Is(err, sdsi.ErrNotOffered) {
		return outcome.Hinted(outcome.NotFound("%w", err), "\"aeemesh schema list\" lists all scenarios, \"aeemesh agents list\" all agents.")
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		return outcome.Hinted(err, "\"aeemesh auth perms --viewer\" prints what looking for all agents needs; a sender may look for those that it sends to: name ENTITY.")
	}
	return outcome.AskFailed(ctx, err)
}

// withStored adds what agents have published that do not answer now. missing is the error
// if none answers.
func withStored(ctx context.Context, a *session.App, s *session.Session, offers []sdsi.Offer, entity, scenario string, missing error) ([]sdsi.Offer, error) {
	js, err := a.JetStream(s.Node.Conn())
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, o := range offers {
		there[o.Entity] = true
	}
	current := map[string]template.Listed{}
	err = jetstream.NewTemplates(js, s.Node.Subjects()).Each(ctx, func(e string, version jetstream.Record) {
		t, err := template.Parse(version.Value)
		if err != nil || there[e] || entity != "" && e != entity || scenario != "" && t.Scenario != scenario {
			return
		}
		id := e + "\x00" + t.Scenario
		if now, ok := current[id]; !ok || template.LessID(now.SchemaID, t.SchemaID) {
			current[id] = t.Listed()
		}
	})
	if err != nil {
		return nil, session.LaneError(err)
	}
	for id, l := range current {
		e, _, _ := strings.Cut(id, "\x00")
		offers = append(offers, sdsi.Offer{Entity: e, Listed: l})
	}
	if len(offers) == 0 {
		return nil, missing
	}
	sdsi.SortOffers(offers)
	return offers, nil
}

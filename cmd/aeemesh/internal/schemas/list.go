package schemas

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/mesh"
)

// offer is one scenario of one agent, as --json prints it.
type offer struct {
	Entity  string `json:"entity"`
	Workers int    `json:"workers"`
	template.Listed
}

func listCommand(a *session.App) *cobra.Command {
	var scenario string
	var wait time.Duration
	c := session.Connects(&cobra.Command{
		Use:   "list [ENTITY]",
		Short: "List the scenarios for which agents have templates",
		Long: `Lists the scenarios of the agents that answer, with the current version of each
template. --scenario says who can do one; nobody can: the exit status is 3.`,
		Example: `  aeemesh schema list
  aeemesh schema list agent.flights
  aeemesh schema list --scenario flight_booking --json | jq -r .entity`,
		Args: outcome.Arguments("[ENTITY]"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			entity := strings.Join(args, "")
			if entity != "" {
				if err := checkEntity(cmd, entity); err != nil {
					return err
				}
			}
			return withNode(a, ctx, cmd, func(ctx context.Context, s *session.Session) error {
				offers, err := offersOf(ctx, s.Node, entity, scenario, wait)
				if err != nil {
					return err
				}
				if len(offers) == 0 && (entity != "" || scenario != "") {
					return outcome.Hinted(noOffer(entity, scenario), "\"aeemesh schema list\" lists all scenarios, \"aeemesh agents list\" all agents.")
				}
				if a.Term.JSON {
					return term.Objects(a.Term, offers)
				}
				if len(offers) == 0 {
					a.Term.Say("no agent publishes templates")
					a.Term.Hint("\"aeemesh worker FILE --templates DIR\" does, and so does an agent whose document has io.input_schema.")
					return nil
				}
				var rows [][]string
				for _, o := range offers {
					rows = append(rows, []string{o.Scenario, o.Entity, strconv.Itoa(o.Workers), o.SchemaID, strings.Join(o.Languages, ","), o.Description})
				}
				a.Term.Table([]string{"scenario", "entity", "workers", "schema_id", "languages", "description"}, rows)
				return nil
			})
		}),
	})
	c.Flags().StringVar(&scenario, "scenario", "", "only this `scenario`: who can do it?")
	c.Flags().DurationVar(&wait, "wait", time.Second, "how long to wait for answers")
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

// noOffer is the error about agents or scenarios that are not there.
func noOffer(entity, scenario string) error {
	switch {
	case entity == "":
		return outcome.NotFound("no agent that answers has the scenario %s", scenario)
	case scenario == "":
		return outcome.NotFound("%s does not answer, or publishes no templates", entity)
	}
	return outcome.NotFound("%s does not answer, or does not have the scenario %s", entity, scenario)
}

// offersOf asks the agents that have scenarios for their templates. The agents' NATS micro
// metadata says which these are.
func offersOf(ctx context.Context, node *mesh.Node, entity, scenario string, wait time.Duration) ([]offer, error) {
	found, err := node.Discover(ctx, entity, wait)
	if err != nil {
		return nil, err
	}
	workers := map[string]int{}
	for _, i := range found {
		names := strings.Split(i.Info.Metadata[mesh.MetaScenarios], ",")
		if names[0] == "" || scenario != "" && !slices.Contains(names, scenario) {
			continue
		}
		workers[i.Entity]++
	}
	var out []offer
	var failed error
	for e, n := range workers {
		var list template.ListResult
		if _, err := node.Query(ctx, e, intents.SchemaList, struct{}{}, &list); err != nil {
			failed = fmt.Errorf("%s: %w", e, outcome.SendFailed(ctx, err))
			continue
		}
		for _, l := range list.Scenarios {
			if scenario == "" || l.Scenario == scenario {
				out = append(out, offer{e, n, l})
			}
		}
	}
	if len(out) == 0 && failed != nil {
		return nil, failed
	}
	sorted.By(out, func(a, b offer) int {
		return strings.Compare(a.Scenario+"\x00"+a.Entity, b.Scenario+"\x00"+b.Entity)
	})
	return out, nil
}

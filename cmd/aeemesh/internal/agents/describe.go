package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/await"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// description is what an entity publishes about itself.
type description struct {
	Entity     string                `json:"entity"`
	Subject    string                `json:"subject"`
	Ask        string                `json:"ask_subject"`
	Service    string                `json:"service"`
	About      string                `json:"description,omitempty"`
	AgentID    string                `json:"agent_id,omitempty"`
	AEEVersion string                `json:"aee_version,omitempty"`
	Extensions []string              `json:"extensions,omitempty"`
	Intents    []string              `json:"intents,omitempty"`
	Scenarios  []string              `json:"scenarios,omitempty"` // of its schema templates
	Health     *intents.HealthResult `json:"health,omitempty"`
	Instances  []mesh.Instance       `json:"instances"`
	Problems   []string              `json:"problems,omitempty"` // requests that it did not answer
}

func describeCommand(a *session.App) *cobra.Command {
	var wait time.Duration
	var schemas bool
	c := session.Connects(&cobra.Command{
		Use:   "describe ENTITY",
		Short: "Describe an agent: its workers, health, intents and versions",
		Long: `Asks an agent for its workers, its health, its intents and the version of AEE
that it speaks (the intents aee.status.health, aee.capability.list and
aee.spec.query, which every agent answers).

With --schema it prints the JSON Schemas of the agent's tasks and results, by
intent. ENTITY.run is that of tasks whose intent the agent has no schema for,
such as those of "send" and "ask". Schema templates are shown by
"aeemesh schema show ENTITY".`,
		Example: `  aeemesh agents describe agent.reviewer
  aeemesh agents describe agent.reviewer --json | jq .intents
  aeemesh agents describe agent.reviewer --schema | jq '."agent.reviewer.run".task'

  # with the nats CLI:
  nats micro info agent-reviewer
  nats micro stats agent-reviewer`,
		Args:              outcome.Arguments("ENTITY"),
		ValidArgsFunction: session.CompleteEntities(a, 1),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := subject.ValidateEntity(args[0]); err != nil {
				return outcome.Usagef(cmd, "%w", err)
			}
			s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Signed: true, Status: session.QuietAboutPermissions(session.ConnectionStatus(a.Term, false))})
			if err != nil {
				return err
			}
			defer s.Close()
			if schemas {
				return describeSchemas(a, ctx, s, args[0])
			}
			d, err := describe(s, ctx, args[0], wait)
			if err != nil {
				return await.Unanswered(ctx, s, args[0], err)
			}
			if a.Term.JSON {
				return a.Term.Object(d)
			}
			printDescription(a, d)
			return nil
		}),
	})
	c.Flags().DurationVar(&wait, "wait", time.Second, "how long to wait for answers")
	c.Flags().BoolVar(&schemas, "schema", false, "print the schemas of what it takes and gives, and nothing else")
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

func describe(s *session.Session, ctx context.Context, entity string, wait time.Duration) (description, error) {
	d := description{Entity: entity, Service: subject.ServiceName(entity)}
	var err error
	if d.Subject, err = s.Node.Subjects().Live(entity); err != nil {
		return d, err
	}
	if d.Ask, err = s.Node.Subjects().Ask(entity); err != nil {
		return d, err
	}
	if d.Instances, err = s.Node.Discover(ctx, entity, wait); err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.App.Conn.Wait())
	defer cancel()
	health, spec, list := intents.HealthResult{}, intents.SpecQueryResult{}, intents.CapabilityListResult{}
	for _, q := range []struct {
		intent string
		out    any
		done   func()
	}{
		{intents.StatusHealth, &health, func() { d.Health = &health }},
		{intents.SpecQuery, &spec, func() { d.AEEVersion, d.Extensions = spec.AEEVersion, spec.Extensions }},
		{intents.CapabilityList, &list, func() { d.Intents, d.Scenarios = list.Intents, list.Scenarios }},
	} {
		if err := workers.Ask(ctx, inquirer(s, d.Instances, entity), entity, q.intent, q.out); err != nil {
			if workers.MayNotAsk(err) && len(d.Instances) > 0 {
				d.Problems = append(d.Problems, fmt.Sprintf("this NATS user may not ask %s: shown is what its workers announce", entity))
				d.tell()
				break
			}
			var e *envelope.Error
			if errors.As(err, &e) && e.Code == envelope.CodeNoResponders && len(d.Instances) == 0 {
				return d, err
			}
			d.Problems = append(d.Problems, fmt.Sprintf("%s: %s", q.intent, outcome.Text(err)))
			continue
		}
		q.done()
	}
	if len(d.Instances) > 0 {
		first := d.Instances[0].Info
		d.About, d.AgentID = first.Description, first.Metadata[mesh.MetaAgentID]
	}
	return d, nil
}

// tell fills in what the workers publish in their stats and metadata.
func (d *description) tell() {
	if status := toldStatus(d.Instances, d.Entity); status != "" {
		d.Health = &intents.HealthResult{Status: intents.Health(status)}
		if lane, ok := laneStats(d.Instances, d.Entity); ok {
			d.Health.Details = map[string]any{workers.LaneDetail: lane}
		}
	}
	meta := d.Instances[0].Info.Metadata
	d.AEEVersion, d.Intents, d.Scenarios = meta["aee_version"], listed(meta[mesh.MetaIntents]), listed(meta[mesh.MetaScenarios])
}

// listed returns the parts of a comma-separated list in a worker's metadata.
func listed(meta string) []string {
	return strings.FieldsFunc(meta, func(r rune) bool { return r == ',' })
}

// accepted lists the unhonoured fields of the agent's document that its
// operator has accepted.
func (d *description) accepted() string {
	said := map[string]bool{}
	for _, i := range d.Instances {
		if what := i.Info.Metadata[agents.MetaAccepted]; what != "" {
			said["not done, which the operator accepts: "+what] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(said)), "; ")
}

func printDescription(a *session.App, d description) {
	t := a.Term
	field := func(name, value string) {
		if value != "" {
			t.Line("%-12s %s", name, term.Printable(value))
		}
	}
	field("entity", d.Entity)
	field("about", d.About)
	field("agent id", d.AgentID)
	field("subjects", d.Subject+", "+d.Ask+" (plain text)")
	field("service", d.Service)
	field("accepted", d.accepted())
	if d.Health != nil {
		details := []string{}
		for _, k := range slices.Sorted(maps.Keys(d.Health.Details)) {
			if k == workers.LaneDetail {
				continue // printed on a line of its own
			}
			details = append(details, fmt.Sprintf("%s %v", k, d.Health.Details[k]))
		}
		field("health", strings.Join(append([]string{string(d.Health.Status)}, details...), ", "))
	}
	if lane, ok := workers.LaneOf(d.Health); ok {
		field("durable", lane.String())
	}
	field("AEE", strings.Join(append([]string{d.AEEVersion}, d.Extensions...), " "))
	for i, name := range d.Intents {
		if i == 0 {
			field("intents", name)
		} else {
			t.Line("%-12s %s", "", term.Printable(name))
		}
	}
	field("scenarios", strings.Join(d.Scenarios, ", "))
	for _, p := range d.Problems {
		t.Warn("%s", term.Printable(p))
	}
	t.Line("")
	var rows [][]string
	for _, i := range d.Instances {
		requests, errs, average, last := 0, 0, time.Duration(0), ""
		started, lane := "", ""
		if i.Stats != nil {
			started = i.Stats.Started.UTC().Format(time.DateTime)
			var busy time.Duration
			for _, e := range i.Stats.Endpoints {
				requests, errs, busy = requests+e.NumRequests, errs+e.NumErrors, busy+e.ProcessingTime
				if e.LastError != "" {
					last = e.LastError
				}
				var own workers.Lane
				if e.Name == "work" && json.Unmarshal(e.Data, &own) == nil {
					lane = own.State
				}
			}
			if requests > 0 {
				average = busy / time.Duration(requests)
			}
		}
		meta := i.Info.Metadata
		rows = append(rows, []string{i.Info.ID, i.Info.Version, meta[worker.MetaHost], meta[worker.MetaPID], meta[metaProgram], started, strconv.Itoa(requests), strconv.Itoa(errs),
			average.Round(10 * time.Microsecond).String(), lane, last})
	}
	t.Table([]string{"instance", "version", "host", "pid", "aeemesh", "started", "requests", "errors", "average", "durable lane", "last error"}, rows)
}

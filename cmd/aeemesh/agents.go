package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/await"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/definitions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// metaProgram is the key of an agent's metadata that holds the program's version.
const metaProgram = "aeemesh_version"

func agentsCommand(a *session.App) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:   "agents",
		Short: "List, describe and ping agents; register definitions",
		Example: `  aeemesh agents list
  aeemesh agents describe agent.reviewer
  aeemesh agents ping agent.reviewer --count 5
  aeemesh agents import reviewer.yaml
  aeemesh agents definitions`,
	}, append([]*cobra.Command{agentsListCommand(a), agentsDescribeCommand(a), agentsPingCommand(a), agentsRetireCommand(a)}, definitions.Commands(a)...)...)
}

// agentSummary is one entity with all its workers.
type agentSummary struct {
	Entity    string   `json:"entity"`
	Instances int      `json:"instances"`
	Hosts     []string `json:"hosts"`             // the hosts of its workers, as far as known
	Programs  []string `json:"aeemesh_versions"`  // versions of aeemesh, of all its workers
	Version   string   `json:"version"`           // the agent's versions, comma-separated
	Status    string   `json:"status"`            // of the worker that answered; "unknown" if none did
	Reason    string   `json:"reason,omitempty"`  // why the status is unknown
	Durable   string   `json:"durable,omitempty"` // the state of its durable lane, and its lag
	Takers    int      `json:"durable_workers"`   // instances that take durable tasks
	Requests  int      `json:"requests"`
	Errors    int      `json:"errors"`
	AverageMS float64  `json:"average_ms"`
	Intents   []string `json:"intents"`
}

func agentsListCommand(a *session.App) *cobra.Command {
	var wait time.Duration
	c := session.Connects(&cobra.Command{
		Use:   "list",
		Short: "List the agents that answer",
		Long: `Lists the agents that answer NATS micro discovery: each entity with its workers
together, their status, and what they have done since they started. AVERAGE is
the time from the beginning of the work on a task to its answer, without the
queue.

A NATS user without permission to ask the agents, such as a viewer, is shown the
status in the workers' stats.`,
		Example: `  aeemesh agents list
  aeemesh agents list --json | jq -r .entity

  # with the nats CLI, a line for each worker:
  nats micro ls`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Signed: true, Status: session.QuietAboutPermissions(session.ConnectionStatus(a.Term, false))})
			if err != nil {
				return err
			}
			defer s.Close()
			found, err := workers.Discover(ctx, s.Node, wait)
			if err != nil {
				return err
			}
			list := summaries(s, ctx, found)
			if len(list) == 0 && !a.Term.JSON {
				a.Term.Say("no agent answers")
				a.Term.Hint("\"aeemesh worker FILE\" starts one.")
				return nil
			}
			header := []string{"entity", "instances", "version", "status", "requests", "errors", "average", "on", "aeemesh", "durable tasks"}
			return term.List(a.Term, header, list, func(l agentSummary) []string {
				status := l.Status
				if l.Reason != "" {
					status += " (" + l.Reason + ")"
				}
				return []string{l.Entity, strconv.Itoa(l.Instances), l.Version, status,
					strconv.Itoa(l.Requests), strconv.Itoa(l.Errors), millis(l.AverageMS), few(l.Hosts), strings.Join(l.Programs, ","), l.Durable}
			})
		}),
	})
	c.Flags().DurationVar(&wait, "wait", time.Second, "how long to wait for answers")
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

// withOne adds a word to a sorted list unless the list has it.
func withOne(list []string, word string) []string {
	if at, there := slices.BinarySearch(list, word); word != "" && !there {
		return slices.Insert(list, at, word)
	}
	return list
}

// few shortens a list for a column: two entries, and the number of the others.
func few(list []string) string {
	if len(list) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:2], ","), len(list)-2)
	}
	return strings.Join(list, ",")
}

// summaries groups the workers by entity and asks each entity for its health.
func summaries(s *session.Session, ctx context.Context, found []mesh.Instance) []agentSummary {
	byEntity := map[string]*agentSummary{}
	var list []*agentSummary
	busy := map[string]time.Duration{}
	for _, i := range found {
		l := byEntity[i.Entity]
		if l == nil {
			l = &agentSummary{Entity: i.Entity, Status: "unknown", Hosts: []string{}, Programs: []string{}, Intents: strings.FieldsFunc(i.Info.Metadata[mesh.MetaIntents], func(r rune) bool { return r == ',' })}
			byEntity[i.Entity] = l
			list = append(list, l)
		}
		l.Instances++
		if workers.TakesDurable(i.Info) {
			l.Takers++
		}
		l.Hosts = withOne(l.Hosts, i.Info.Metadata[worker.MetaHost])
		l.Programs = withOne(l.Programs, i.Info.Metadata[metaProgram])
		if !slices.Contains(strings.Split(l.Version, ","), i.Info.Version) {
			l.Version = strings.TrimPrefix(l.Version+","+i.Info.Version, ",")
		}
		if i.Stats != nil {
			for _, e := range i.Stats.Endpoints {
				l.Requests += e.NumRequests
				l.Errors += e.NumErrors
				busy[i.Entity] += e.ProcessingTime
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, min(2*time.Second, s.App.Conn.Wait()))
	defer cancel()
	var wait sync.WaitGroup
	refused := false // the server does not permit the request; it is sent only once
	for n, l := range list {
		if l.Requests > 0 {
			l.AverageMS = float64(busy[l.Entity].Microseconds()) / 1000 / float64(l.Requests)
		}
		switch {
		case n == 0:
			refused = askHealth(s, ctx, found, l)
		case refused:
			l.told(found)
		default:
			wait.Go(func() { askHealth(s, ctx, found, l) })
		}
	}
	wait.Wait()
	out := make([]agentSummary, len(list))
	for i, l := range list {
		out[i] = *l
	}
	return out
}

// askHealth asks an entity for its health. If the server refuses the request,
// it uses the status in the workers' stats.
func askHealth(s *session.Session, ctx context.Context, found []mesh.Instance, l *agentSummary) (refused bool) {
	var health intents.HealthResult
	err := workers.Ask(ctx, inquirer(s, found, l.Entity), l.Entity, intents.StatusHealth, &health)
	switch {
	case workers.MayNotAsk(err):
		l.told(found)
		return true
	case err != nil:
		l.Reason = whyUnknown(err)
		return false
	}
	l.Status = string(health.Status)
	lane, ok := workers.LaneOf(&health)
	l.lane(lane, ok)
	return false
}

// told sets the status from the workers' stats.
func (l *agentSummary) told(found []mesh.Instance) {
	if l.Status = toldStatus(found, l.Entity); l.Status == "" {
		l.Status, l.Reason = "unknown", "may not ask"
	}
	l.lane(laneStats(found, l.Entity))
}

// lane sets the state of the durable lane.
func (l *agentSummary) lane(lane workers.Lane, ok bool) {
	switch {
	case l.Takers > 0 && l.Takers < l.Instances:
		l.Durable = fmt.Sprintf("%d of %d workers", l.Takers, l.Instances)
	case ok:
		l.Durable = lane.Brief()
	case l.Takers < l.Instances:
		l.Durable = "off"
	}
}

// whyUnknown describes in a word or two why an entity's health is not known.
func whyUnknown(err error) string {
	var e *envelope.Error
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return "may not ask"
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout):
		return "no answer"
	case !errors.As(err, &e):
		return ""
	}
	switch e.Code {
	case envelope.CodeSigRequired, envelope.CodeSigInvalid, envelope.CodeSigUncheckable, envelope.CodeKeyUnknown,
		envelope.CodeKeyInvalid, envelope.CodeFromDenied, envelope.CodeDenied:
		if e.FromPeer() {
			return "refuses us"
		}
		return "answer not trusted"
	case envelope.CodeTimeout:
		return "no answer"
	case envelope.CodeNoResponders:
		return "gone"
	case envelope.CodeDraining:
		return "draining"
	case envelope.CodeBusy, envelope.CodeRateLimited:
		return "busy"
	}
	return string(e.Code)
}

func millis(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(10 * time.Microsecond).String()
}

// agentDescription is what an entity publishes about itself.
type agentDescription struct {
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

func agentsDescribeCommand(a *session.App) *cobra.Command {
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
			d, err := describeAgent(s, ctx, args[0], wait)
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

func describeAgent(s *session.Session, ctx context.Context, entity string, wait time.Duration) (agentDescription, error) {
	d := agentDescription{Entity: entity, Service: subject.ServiceName(entity)}
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
func (d *agentDescription) tell() {
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
func (d *agentDescription) accepted() string {
	said := map[string]bool{}
	for _, i := range d.Instances {
		if what := i.Info.Metadata[agents.MetaAccepted]; what != "" {
			said["not done, which the operator accepts: "+what] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(said)), "; ")
}

func printDescription(a *session.App, d agentDescription) {
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

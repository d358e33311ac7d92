package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/definitions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// metaProgram is the key of an agent's metadata that holds the program's version.
const metaProgram = "aeemesh_version"

// Command returns "aeemesh agents".
func Command(a *session.App) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:   "agents",
		Short: "List, describe and ping agents; register definitions",
		Example: `  aeemesh agents list
  aeemesh agents describe agent.reviewer
  aeemesh agents ping agent.reviewer --count 5
  aeemesh agents import reviewer.yaml
  aeemesh agents definitions`,
	}, append([]*cobra.Command{ListCommand(a), describeCommand(a), pingCommand(a), retireCommand(a)}, definitions.Commands(a)...)...)
}

// summary is one entity with all its workers.
type summary struct {
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

// ListCommand returns "aeemesh agents list", which is "aeemesh ls", too.
func ListCommand(a *session.App) *cobra.Command {
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
			found, err := workers.Discover(ctx, s.Node, "", wait)
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
			return term.List(a.Term, header, list, func(l summary) []string {
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

// firstTurn is how long the first entity is asked alone. The server refuses a request
// at once; a worker that is slow to answer does not hold up the other questions.
const firstTurn = 300 * time.Millisecond

// summaries groups the workers by entity and asks each entity for its health.
func summaries(s *session.Session, ctx context.Context, found []mesh.Instance) []summary {
	byEntity := map[string]*summary{}
	var list []*summary
	busy := map[string]time.Duration{}
	for _, i := range found {
		l := byEntity[i.Entity]
		if l == nil {
			l = &summary{Entity: i.Entity, Status: "unknown", Hosts: []string{}, Programs: []string{}, Intents: listed(i.Info.Metadata[mesh.MetaIntents])}
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
	var refused atomic.Bool // the server does not permit a request; no more are sent
	ask := func(l *summary) {
		if askHealth(s, ctx, found, l) {
			refused.Store(true)
		}
	}
	first := make(chan struct{})
	for n, l := range list {
		if l.Requests > 0 {
			l.AverageMS = float64(busy[l.Entity].Microseconds()) / 1000 / float64(l.Requests)
		}
		switch {
		case n == 0:
			wait.Go(func() { defer close(first); ask(l) })
			select {
			case <-first:
			case <-time.After(firstTurn):
			}
		case refused.Load():
			l.setFromStats(found)
		default:
			wait.Go(func() { ask(l) })
		}
	}
	wait.Wait()
	out := make([]summary, len(list))
	for i, l := range list {
		// Of refusals that come together the connection keeps only the last.
		if refused.Load() && l.Reason == noAnswer {
			l.setFromStats(found)
		}
		out[i] = *l
	}
	return out
}

// askHealth asks an entity for its health. If the server refuses the request,
// it uses the status in the workers' stats.
func askHealth(s *session.Session, ctx context.Context, found []mesh.Instance, l *summary) (refused bool) {
	var health intents.HealthResult
	err := workers.Ask(ctx, inquirer(s, found, l.Entity), l.Entity, intents.StatusHealth, &health)
	switch {
	case workers.MayNotAsk(err):
		l.setFromStats(found)
		return true
	case err != nil:
		l.Reason = whyUnknown(err)
		l.lane(workers.Lane{}, false)
		return false
	}
	lane, ok := workers.LaneOf(&health)
	l.answered(string(health.Status), lane, ok, found)
	return false
}

// answered sets the status from the health of the worker that answered. Where the stats of another
// one tell of something worse, it is shown.
func (l *summary) answered(status string, lane workers.Lane, ok bool, found []mesh.Instance) {
	l.Status = status
	if l.Instances > 1 {
		if worst, n := worse(found, l.Entity, status); n > 0 {
			l.Status, l.Reason = worst, fmt.Sprintf("%d of %d workers", n, l.Instances)
		}
		if told, there := laneStats(found, l.Entity); there && ok && lane.State == laneWorking {
			lane = told
		}
	}
	l.lane(lane, ok)
}

// setFromStats sets the status from the workers' stats.
func (l *summary) setFromStats(found []mesh.Instance) {
	l.Reason = ""
	if l.Status = toldStatus(found, l.Entity); l.Status == "" {
		l.Status, l.Reason = "unknown", "may not ask"
	}
	l.lane(laneStats(found, l.Entity))
}

// lane sets the state of the durable lane.
func (l *summary) lane(lane workers.Lane, ok bool) {
	switch {
	case l.Takers > 0 && l.Takers < l.Instances:
		l.Durable = fmt.Sprintf("%d of %d workers", l.Takers, l.Instances)
	case ok:
		l.Durable = lane.Brief()
	case l.Takers < l.Instances:
		l.Durable = "off"
	case l.Takers > 0: // by its metadata; its health says no more
		l.Durable = "on"
	}
}

// noAnswer is the reason if an entity did not answer.
const noAnswer = "no answer"

// whyUnknown describes in a word or two why an entity's health is not known.
func whyUnknown(err error) string {
	var e *envelope.Error
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return "may not ask"
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout):
		return noAnswer
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
		return noAnswer
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

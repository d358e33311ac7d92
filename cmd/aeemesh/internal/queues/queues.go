package queues

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
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// Command returns "aeemesh queues".
func Command(a *session.App) *cobra.Command {
	var every, wait time.Duration
	c := session.Connects(&cobra.Command{
		Use:   "queues [ENTITY]",
		Short: "Show how many durable tasks wait, and for how long",
		Long: `Shows the queues of durable tasks, of one agent or of all that have tasks, dead
letters or had a worker: for each priority how many tasks wait, how many were
delivered to workers ("in work"), how many of those were delivered before, and
the age of the oldest. "In work" are also tasks that a worker has put back for a
while: after an error that may be retried, or because its agent has no room. The
first line of an agent also has its delayed tasks, its dead letters, and the
workers that answer now, "1 of 3" where one of three takes durable tasks. Agents
with tasks that no worker takes are named.`,
		Example: `  aeemesh queues
  aeemesh queues agent.reviewer --watch 2s
  aeemesh queues --json | jq -r 'select(.waiting + .in_work > 100) | .entity'

  # with the nats CLI:
  nats consumer report AEE_WORK`,
		Args:              outcome.Arguments("[ENTITY]"),
		ValidArgsFunction: session.CompleteEntities(a, 1),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			entity := ""
			if len(args) == 1 {
				entity = args[0]
				if err := subject.ValidateEntity(entity); err != nil {
					return outcome.Usagef(cmd, "%w", err)
				}
			}
			if every < 0 || wait <= 0 {
				return outcome.Usagef(cmd, "--watch cannot be negative, and --wait must be above 0")
			}
			s, err := a.Open(ctx, cmd, session.Options{})
			if err != nil {
				return err
			}
			defer s.Close()
			return watch(s, ctx, entity, every, wait)
		}),
	})
	c.Flags().DurationVar(&every, "watch", 0, "show them anew at this interval, until Ctrl-C")
	c.Flags().DurationVar(&wait, "wait", 500*time.Millisecond, "how long to wait for the workers' answers")
	return c
}

// View describes the queues of an agent.
type View struct {
	Entity string `json:"entity"`
	counts
	Scheduled int    `json:"scheduled"` // tasks that are scheduled for later
	Dead      int    `json:"dead"`
	Workers   *int   `json:"workers,omitempty"`         // workers that currently answer; nil: not known
	Takers    *int   `json:"durable_workers,omitempty"` // workers of those that take durable tasks
	Queues    []part `json:"queues,omitempty"`
	Problem   string `json:"problem,omitempty"`
}

type counts struct {
	Waiting     int       `json:"waiting"`
	InWork      int       `json:"in_work"`
	Redelivered int       `json:"redelivered"`
	Oldest      time.Time `json:"oldest,omitzero"`         // of the waiting ones
	OldestDrawn time.Time `json:"oldest_in_work,omitzero"` // of those in work
}

// first returns when the oldest task was stored, waiting or in work.
func (c counts) first() time.Time {
	if c.Oldest.IsZero() || !c.OldestDrawn.IsZero() && c.OldestDrawn.Before(c.Oldest) {
		return c.OldestDrawn
	}
	return c.Oldest
}

type part struct {
	Priority string `json:"priority"`
	counts
}

// ViewOf describes what waits for an agent, and whether workers take it; t is nil if
// that is not known.
func ViewOf(b jetstream.Backlog, t *workers.Takers) View {
	v := View{
		Entity: b.Entity, Scheduled: b.Scheduled + b.Due, Dead: b.Dead,
		counts: counts{b.Pending(), b.Unacked(), b.Redelivered(), b.Oldest(), b.OldestDrawn()},
	}
	if t != nil {
		v.Workers, v.Takers = &t.Workers, &t.Durable
	}
	var paused []string
	for _, p := range b.Priorities {
		if p.Pending+p.Unacked > 0 {
			v.Queues = append(v.Queues, part{p.Priority, counts{p.Pending, p.Unacked, p.Redelivered, p.Oldest, p.OldestDrawn}})
		}
		if p.Paused {
			paused = append(paused, p.Priority)
		}
	}
	switch tasks := v.Waiting + v.InWork + b.Due; {
	case len(paused) > 0:
		v.Problem = "paused are the consumers of priority " + strings.Join(paused, ", ")
	case t == nil:
	case t.Workers == 0 && tasks > 0:
		v.Problem = term.Counted(tasks, "task", "tasks") + " and " + t.Lacking()
	case t.Durable == 0 && tasks > 0:
		v.Problem = term.Counted(tasks, "task waits", "tasks wait") + " and " + t.Lacking()
	}
	return v
}

// empty reports whether the agent has neither tasks nor workers, so that it may not exist.
func (v View) empty() bool {
	return v.Waiting+v.InWork+v.Scheduled+v.Dead == 0 && v.Workers != nil && *v.Workers == 0
}

// workers formats the number of workers, and how many of them take durable
// tasks if not all do.
func (v View) workers() string {
	switch {
	case v.Workers == nil:
		return "?"
	case *v.Takers == *v.Workers:
		return strconv.Itoa(*v.Workers)
	}
	return fmt.Sprintf("%d of %d", *v.Takers, *v.Workers)
}

func watch(s *session.Session, ctx context.Context, entity string, every, wait time.Duration) error {
	d, err := s.Lane()
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		views, err := look(s, ctx, d.Queue, entity, wait)
		switch {
		case err != nil && first:
			return session.LaneError(err)
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil: // a server that restarts is available again soon
			s.App.Term.Warn("%s; trying again", outcome.Text(err))
		default:
			if every > 0 && !s.App.Term.JSON {
				s.App.Term.Heading("%s", time.Now().Format(time.TimeOnly))
			}
			if err := show(s.App, views); err != nil || every == 0 {
				return err
			}
		}
		if !pause.For(ctx, every) {
			return nil
		}
	}
}

func look(s *session.Session, ctx context.Context, q *jetstream.Queue, entity string, wait time.Duration) ([]View, error) {
	var only []string
	if entity != "" {
		only = []string{entity}
	}
	list, err := q.Backlog(ctx, only...)
	if err != nil {
		return nil, err
	}
	found, known, err := workers.DiscoverIfAllowed(ctx, s.App.Term, s.Node, entity, wait)
	if err != nil {
		return nil, err
	}
	takers := workers.TakersOf(found)
	views := make([]View, 0, len(list))
	for _, b := range list {
		t := takers[b.Entity]
		if t == nil && known {
			t = &workers.Takers{}
		}
		views = append(views, ViewOf(b, t))
	}
	return views, nil
}

func show(a *session.App, views []View) error {
	if a.Term.JSON {
		return term.Objects(a.Term, views)
	}
	if len(views) == 0 {
		a.Term.Say("no agent has or had durable tasks")
		return nil
	}
	var rows [][]string
	for _, v := range views {
		parts := v.Queues
		if len(parts) == 0 {
			parts = []part{{}}
		}
		for i, p := range parts {
			r := []string{"", p.Priority, strconv.Itoa(p.Waiting), strconv.Itoa(p.InWork), strconv.Itoa(p.Redelivered), age(p.first()), "", "", ""}
			if i == 0 {
				r[0], r[6], r[7], r[8] = v.Entity, strconv.Itoa(v.Scheduled), strconv.Itoa(v.Dead), v.workers()
			}
			rows = append(rows, r)
		}
	}
	a.Term.Table([]string{"agent", "priority", "waiting", "in work", "redelivered", "oldest", "scheduled", "dead", "workers"}, rows)
	for _, v := range views {
		if v.Problem != "" {
			a.Term.Warn("%s: %s", v.Entity, v.Problem)
		}
	}
	if slices.ContainsFunc(views, func(v View) bool { return strings.Contains(v.Problem, "no worker") }) {
		a.Term.Hint("\"aeemesh worker FILE\" starts one; the tasks wait for it.")
	} else if slices.ContainsFunc(views, func(v View) bool { return v.Problem != "" && v.Takers != nil && *v.Takers == 0 }) {
		a.Term.Hint("\"aeemesh agents list\" shows what the workers wait for, \"aeemesh doctor\" what is missing.")
	} else if len(views) == 1 && views[0].empty() {
		a.Term.Hint("Is " + views[0].Entity + " its name? It has no task, no dead letter, and no worker that answers.")
	}
	return nil
}

// age formats how long ago t was; "" for never.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return term.Span(time.Since(t))
}

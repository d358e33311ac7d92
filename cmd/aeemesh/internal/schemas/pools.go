package schemas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
)

// A stock is a stored pool of an agent.
type stock struct {
	scenario, cohort string
	id               string
	revision         uint64
	*evolve.Pool
}

// title names a pool for a person.
func (s *stock) title() string {
	if s.cohort == "" {
		return s.scenario
	}
	return s.scenario + " of cohort " + s.cohort
}

// withPools runs f with the pools of an agent.
func withPools(a *session.App, ctx context.Context, cmd *cobra.Command, entity, scenario string, f func(context.Context, *jetstream.Pools, []*stock) error) error {
	if err := checkEntity(cmd, entity); err != nil {
		return err
	}
	return withStores(a, ctx, cmd, func(ctx context.Context, _ *jetstream.Templates, pools *jetstream.Pools) error {
		all, err := readPools(ctx, pools, entity, scenario)
		if err != nil {
			return err
		}
		if len(all) == 0 && scenario != "" {
			return outcome.NotFound("%s has learned nothing in a scenario %s", entity, scenario)
		}
		if len(all) == 0 {
			return outcome.Hinted(outcome.NotFound("%s has learned nothing", entity), "Its workers learn with \"aeemesh worker --learn\".")
		}
		return f(ctx, pools, all)
	})
}

// readPools returns the pools of an agent, of one scenario or of all (""). With the error
// about those that cannot be read it returns the others.
func readPools(ctx context.Context, pools *jetstream.Pools, entity, scenario string) ([]*stock, error) {
	records, err := pools.List(ctx, entity)
	if err != nil {
		return nil, session.LaneError(err)
	}
	return decodePools(records, scenario)
}

// decodePools is readPools for records that were read.
func decodePools(records []jetstream.Record, scenario string) (all []*stock, err error) {
	var bad []error
	for _, r := range records {
		s := &stock{id: r.ID, revision: r.Revision}
		s.scenario, s.cohort, _ = strings.Cut(r.ID, "\n")
		if scenario != "" && s.scenario != scenario {
			continue
		}
		if s.Pool, err = evolve.Open(r.Value); err != nil {
			bad = append(bad, fmt.Errorf("scenario %s: %w", s.title(), err))
			continue
		}
		all = append(all, s)
	}
	return all, errors.Join(bad...)
}

// errNothing is returned by a change that has found nothing to change.
var errNothing = errors.New("nothing to change")

// maxTries bounds the attempts to change a pool that a busy agent's workers change, too.
const maxTries = 100

// changePools changes the pools in which f finds something to change. If f finds nothing in any
// pool, changePools returns an error of f, preferably that a pool has the decision already. It
// tries again if a worker was faster.
func changePools(ctx context.Context, pools *jetstream.Pools, entity string, all []*stock, f func(*stock, time.Time) error) (changed []*stock, err error) {
	var first error
	for _, s := range all {
		for try := 0; ; try++ {
			now := time.Now()
			if err := f(s, now); err != nil {
				if first == nil || errors.Is(first, evolve.ErrUnknownKey) || errors.Is(err, evolve.ErrUnchanged) {
					first = err
				}
				break
			}
			raw, err := s.Encode(now)
			if err != nil {
				return changed, err
			}
			if _, err = pools.Swap(ctx, entity, s.id, raw, s.revision); err == nil {
				changed = append(changed, s)
				break
			}
			if !errors.Is(err, jetstream.ErrChanged) || try == maxTries {
				return changed, session.LaneError(err)
			}
			if raw, s.revision, err = pools.Get(ctx, entity, s.id); err != nil {
				return changed, session.LaneError(err)
			}
			if raw == nil { // it was removed meanwhile
				break
			}
			if s.Pool, err = evolve.Open(raw); err != nil {
				return changed, err
			}
		}
	}
	if len(changed) > 0 {
		first = nil
	}
	return changed, first
}

func statsCommand(a *session.App) *cobra.Command {
	var scenario string
	var limit int
	c := session.Connects(&cobra.Command{
		Use:   "stats ENTITY",
		Short: "Show what an agent has learned, and how its keys do",
		Long: `Shows, for each scenario, what clients put into the key "other" (wishes, with
the words that several clients have said), and the keys that came of it with
their metrics over the last 30 days: usage, accuracy, types, adoption.`,
		Example: `  aeemesh schema stats agent.flights
  aeemesh schema stats agent.flights --scenario flight_booking --json`,
		Args:              outcome.Arguments("ENTITY"),
		ValidArgsFunction: session.CompleteEntities(a, 1),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return outcome.Usagef(cmd, "--limit %d: it is at least 1", limit)
			}
			return withPools(a, ctx, cmd, args[0], scenario, func(_ context.Context, _ *jetstream.Pools, all []*stock) error {
				now := time.Now()
				for _, s := range all {
					if a.Term.JSON {
						if err := a.Term.Object(map[string]any{"scenario": s.scenario, "cohort": s.cohort, "embedder": s.Embedder(), "keys": s.Keys(now), "clusters": s.Clusters(now), "events": s.Events()}); err != nil {
							return err
						}
						continue
					}
					printStats(a.Term, s, now, limit)
				}
				return nil
			})
		}),
	})
	c.Flags().StringVar(&scenario, "scenario", "", "only this `scenario`")
	c.Flags().IntVar(&limit, "limit", 10, "how many wishes and events are shown; --json prints all")
	return c
}

func printStats(t *term.Terminal, s *stock, now time.Time, limit int) {
	t.Heading("%s", s.title())
	var rows [][]string
	for _, k := range s.Keys(now) {
		rows = append(rows, []string{k.Name, string(k.Type), stateOf(k), term.Ago(k.Since), percent(k.Metrics.UsageFrequency), percent(k.Metrics.AlignmentAccuracy), percent(k.Metrics.TypeCorrectness), percent(k.Metrics.AdoptionRate), fmt.Sprint(k.Metrics.Payloads)})
	}
	if len(rows) > 0 {
		t.Table([]string{"key", "type", "state", "since", "usage", "accuracy", "types", "adoption", "payloads"}, rows)
	} else {
		t.Say("no keys yet")
	}
	rows = nil
	unproved := 0
	clusters := s.Clusters(now)
	for i, c := range clusters {
		if c.Unproved {
			unproved++
		}
		if i >= limit {
			continue
		}
		said := cmp.Or(strings.Join(c.Examples, "; "), "(no words that several clients have said)")
		rows = append(rows, []string{fmt.Sprint(c.ID), fmt.Sprintf("%.1f", c.Heat), fmt.Sprint(c.Clients), fmt.Sprint(c.Votes), c.Key, said})
	}
	if len(rows) > 0 {
		t.Table([]string{"wish", "heat", "clients", "votes", "key", "said"}, rows)
	}
	if unproved > 0 {
		t.Note("Senders that do not sign count as one client, and one client makes no key. Sign, or set learning.unsigned in the worker's configuration.")
	}
	rows = nil
	events := s.Events()
	for _, e := range events[max(0, len(events)-limit):] {
		rows = append(rows, []string{fmt.Sprint(e.Number), term.Ago(e.At), e.Kind, e.Key, e.Why, e.By})
	}
	if len(rows) > 0 {
		t.Table([]string{"event", "when", "what", "key", "why", "by"}, rows)
	}
	var more []string
	if n := len(clusters) - limit; n > 0 {
		more = append(more, term.Counted(n, "more wish", "more wishes"))
	}
	if n := len(events) - limit; n > 0 {
		more = append(more, term.Counted(n, "earlier event", "earlier events"))
	}
	if len(more) > 0 {
		t.Note("%s not shown: --limit sets how many are", strings.Join(more, " and "))
	}
}

func stateOf(k evolve.Key) string {
	state := string(k.State)
	if k.Refines {
		state += ", a better description"
	}
	if k.Owner != "" {
		state += ", of one client"
	}
	return state
}

func percent(ratio float64) string {
	if ratio < 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*ratio)
}

func pendingCommand(a *session.App) *cobra.Command {
	c := session.Connects(&cobra.Command{
		Use:   "pending ENTITY",
		Short: "List the keys that wait for an operator",
		Long: `Lists the keys that came of what clients ask for, and that no client is told of
before an operator has approved them: they may be about payment, identity or
access, or expose a capability.`,
		Example:           `  aeemesh schema pending agent.flights`,
		Args:              outcome.Arguments("ENTITY"),
		ValidArgsFunction: session.CompleteEntities(a, 1),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return withPools(a, ctx, cmd, args[0], "", func(_ context.Context, _ *jetstream.Pools, all []*stock) error {
				var rows [][]string
				for _, s := range all {
					for _, k := range s.Keys(time.Now()) {
						if k.State != evolve.Pending {
							continue
						}
						if a.Term.JSON {
							if err := a.Term.Object(map[string]any{"scenario": s.scenario, "cohort": s.cohort, "key": k}); err != nil {
								return err
							}
						}
						rows = append(rows, []string{s.title(), k.Name, string(k.Type), term.Ago(k.Since), k.Why, k.Description})
					}
				}
				switch {
				case a.Term.JSON:
				case len(rows) == 0:
					a.Term.Say("no key waits for an operator")
				default:
					a.Term.Table([]string{"scenario", "key", "type", "since", "why it waits", "description"}, rows)
				}
				return nil
			})
		}),
	})
	return c
}

func approveCommand(a *session.App) *cobra.Command {
	return decision(a, &cobra.Command{
		Use:   "approve ENTITY KEY",
		Short: "Let a key begin its trial",
		Long: `Lets a key that waits for an operator begin its trial: clients are told of it.
With --values it says of a key on trial that you have looked at its values: it
can become stable although no values were judged.`,
		Example: `  aeemesh schema approve agent.flights pay_by_invoice
  aeemesh schema approve agent.flights pay_by_invoice --values`,
	}, "approved", func(s *stock, key string, d decided, now time.Time) error {
		if d.values {
			return s.Vouch(key, d.by, now)
		}
		return s.Approve(key, d.by, now)
	})
}

func rejectCommand(a *session.App) *cobra.Command {
	return decision(a, &cobra.Command{
		Use:   "reject ENTITY KEY",
		Short: "End a key's way into the template",
		Long: `Refuses a key that waits: it is not proposed again for 90 days (rules.retire). A
key that clients know of is deprecated, and withdrawn 14 days later
(rules.grace).`,
		Example: `  aeemesh schema reject agent.flights pay_by_invoice --why 'we do not'`,
	}, "rejected", func(s *stock, key string, d decided, now time.Time) error { return s.Reject(key, d.by, d.why, now) })
}

// decided is what an operator says about a key.
type decided struct {
	by, why string
	values  bool // the operator has looked at them
}

func decision(a *session.App, c *cobra.Command, done string, decide func(s *stock, key string, d decided, now time.Time) error) *cobra.Command {
	var scenario string
	var d decided
	c.Args, c.ValidArgsFunction = outcome.Arguments("ENTITY", "KEY"), session.CompleteEntities(a, 1)
	c.RunE = a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if d.by == "" {
			d.by = a.DefaultFrom()
		} else if err := subject.ValidateEntity(d.by); err != nil {
			return outcome.Usagef(cmd, "--by: %w", err)
		}
		return withPools(a, ctx, cmd, args[0], scenario, func(ctx context.Context, pools *jetstream.Pools, all []*stock) error {
			changed, err := changePools(ctx, pools, args[0], all, func(s *stock, now time.Time) error { return decide(s, args[1], d, now) })
			if errors.Is(err, evolve.ErrUnknownKey) {
				return outcome.Hinted(outcome.NotFound("%s has no such key: %s", args[0], args[1]), "\"aeemesh schema stats %s\" lists them.", args[0])
			}
			if errors.Is(err, evolve.ErrUnchanged) {
				a.Term.Note("%s", err)
				return nil
			}
			if err != nil {
				return err
			}
			for _, s := range changed {
				a.Term.Good("%s: %s is %s", s.title(), args[1], done)
			}
			return nil
		})
	})
	c.Flags().StringVar(&scenario, "scenario", "", "only in this `scenario`")
	c.Flags().StringVar(&d.by, "by", "", "who decides: an `entity` (default human.<your login>)")
	if done == "approved" {
		c.Flags().BoolVar(&d.values, "values", false, "you have looked at the values that clients send for it")
	} else {
		c.Flags().StringVar(&d.why, "why", "", "the `reason`, for the record")
	}
	return session.Connects(c)
}

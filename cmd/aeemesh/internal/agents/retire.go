package agents

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/definitions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/topology"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

func retireCommand(a *session.App) *cobra.Command {
	var force, yes bool
	c := session.Connects(&cobra.Command{
		Use:   "retire ENTITY",
		Short: "Delete what a retired agent has left on the server",
		Long: `Deletes the consumers of an agent's durable tasks, the record that it takes
such tasks, its slots and its registration, so that no list has it any more.
Its runs, replies and dead letters stay until they expire.

It refuses while workers of the agent answer, and while tasks wait for it.
--force withdraws those tasks: their senders get E_CANCELLED. A task that a
worker has begun is not ended, and then nothing is deleted: let a worker of the
agent end it, or cancel it ("aeemesh runs cancel ID -e ENTITY"), and retire the
agent again. A worker that still runs makes its consumers again. On a terminal
it asks first; elsewhere it needs --yes.`,
		Example: `  aeemesh agents retire agent.ecoh
  aeemesh agents retire agent.old_reviewer --force --yes

  # with the nats CLI:
  nats consumer rm AEE_WORK normal-agent=2Eecoh`,
		Args:              outcome.Arguments("ENTITY"),
		ValidArgsFunction: session.CompleteServed(a, 1),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := subject.ValidateEntity(args[0]); err != nil {
				return outcome.Usagef(cmd, "%w", err)
			}
			s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Signed: true, Config: a.LaneClient(cmd)})
			if err != nil {
				return err
			}
			defer s.Close()
			return retire(s, ctx, cmd, args[0], force, yes)
		}),
	})
	c.Flags().BoolVar(&force, "force", false, "also where workers answer, and withdraw the tasks that wait")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

// retirement is what "agents retire --json" prints.
type retirement struct {
	Entity string `json:"entity"`
	jetstream.Retired
	Withdrawn    int  `json:"withdrawn"`    // number of tasks
	Registration bool `json:"registration"` // there was a registration, and it was removed
}

func retire(s *session.Session, ctx context.Context, cmd *cobra.Command, entity string, force, yes bool) error {
	a := s.App
	answer, waiting, err := unused(s, ctx, entity, force)
	if err != nil {
		return err
	}
	if !yes {
		a.Term.Say("this deletes the consumers, the slots and the registration of %s%s", entity, map[bool]string{true: ", and withdraws " + term.Counted(waiting, "task", "tasks")}[waiting > 0])
		if err := topology.Agreed(a, cmd); err != nil {
			return err
		}
		if !force { // a worker or a task may have come while the question waited
			if _, _, err = unused(s, ctx, entity, force); err != nil {
				return err
			}
		}
	}
	out := retirement{Entity: entity}
	if force {
		if out.Withdrawn, err = s.Node.CancelAllQueued(ctx, entity, "the agent is retired"); err != nil {
			return notWithdrawn(entity, out.Withdrawn, err)
		}
	}
	js, m, err := a.Streams(s.Conn)
	if err != nil {
		return err
	}
	if out.Retired, err = jetstream.Retire(ctx, js, m, entity); err != nil {
		return session.LaneError(err)
	}
	if out.Registration, err = unregister(ctx, jetstream.NewAgents(js, m), entity); err != nil {
		return err
	}
	if a.Term.JSON {
		return a.Term.Object(out)
	}
	switch {
	case len(out.Consumers) == 0 && !out.Lane && out.Slots == 0 && !out.Registration && out.Withdrawn == 0:
		a.Term.Say("%s has left nothing on the server", entity)
	default:
		a.Term.Good("%s is retired: %s, %s and %s deleted, %s withdrawn", entity, term.Counted(len(out.Consumers), "consumer", "consumers"), term.Counted(int(out.Slots), "slot", "slots"),
			map[bool]string{true: "its registration", false: "no registration"}[out.Registration], term.Counted(out.Withdrawn, "task", "tasks"))
	}
	if answer > 0 {
		a.Term.Warn("%s, and makes its consumers again", term.Counted(answer, "worker still answers", "workers still answer"))
	}
	return nil
}

// toldFailures is how many of the tasks that could not be withdrawn are named.
const toldFailures = 3

// notWithdrawn is the error of a retirement that has withdrawn some tasks, and not all.
func notWithdrawn(entity string, done int, err error) error {
	failed := []error{err}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		failed = all.Unwrap()
	}
	text := fmt.Sprintf("%s is not retired: %s withdrawn, %s", entity, term.Counted(done, "task", "tasks"), term.Counted(len(failed), "failure", "failures"))
	for i, one := range failed {
		if i == toldFailures {
			text += fmt.Sprintf("; and %d more", len(failed)-i)
			break
		}
		text += map[bool]string{true: ": ", false: "; "}[i == 0] + strings.ReplaceAll(outcome.Text(one), "\n", ", ")
	}
	var out error = &outcome.SaidError{Text: text, Cause: err}
	if errors.Is(err, mesh.ErrBegun) {
		out = outcome.Hinted(out, "\"aeemesh runs list -e %s\" shows what has begun. Let a worker end it, or cancel it (\"aeemesh runs cancel ID -e %s\"), and retire the agent again.", entity, entity)
	}
	return outcome.WithMember(session.LaneError(out), "withdrawn", done)
}

// unused returns how many workers of an entity answer, and how many tasks wait for it. Unless it
// is forced, it fails if there are any, or if it may not ask for workers.
func unused(s *session.Session, ctx context.Context, entity string, force bool) (answer, waiting int, err error) {
	found, err := workers.Discover(ctx, s.Node, entity, time.Second)
	switch {
	case force && errors.Is(err, nats.ErrPermissionViolation):
		s.App.Term.Warn("whether workers answer is not known: %s", outcome.Text(err))
	case err != nil:
		return 0, 0, err
	case len(found) > 0 && !force:
		return 0, 0, outcome.Hinted(outcome.Conflict("%s is served: %s", entity, term.Counted(len(found), "worker answers", "workers answer")), "Stop its workers first; \"aeemesh agents describe %s\" lists them.", entity)
	}
	list, err := s.Node.Durable().Queue.Backlog(ctx, entity)
	if err != nil {
		return 0, 0, session.LaneError(err)
	}
	waiting = list[0].Pending() + list[0].Unacked() + list[0].Scheduled + list[0].Due
	if waiting > 0 && !force {
		return 0, 0, outcome.Hinted(outcome.Conflict("%s for %s", term.Counted(waiting, "task waits", "tasks wait"), entity), "\"aeemesh queues %s\" shows them; --force withdraws them, \"aeemesh runs cancel ID -e %s\" one.", entity, entity)
	}
	return len(found), waiting, nil
}

// unregister removes the registrations of an entity, and reports whether there
// were any.
func unregister(ctx context.Context, reg registry.Registry, entity string) (bool, error) {
	all, err := reg.List(ctx)
	if errors.Is(err, jetstream.ErrNotFound) {
		return false, nil // the mesh has no registry
	}
	if err != nil {
		return false, err
	}
	there := false
	for _, e := range all {
		if e.Err == nil && e.Record.Entity == entity {
			if err := reg.Remove(ctx, e.Key, e.Revision); err != nil {
				return there, definitions.RegistryError(err)
			}
			there = true
		}
	}
	return there, nil
}

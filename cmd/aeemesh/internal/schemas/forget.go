package schemas

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
)

func forgetCommand(a *session.App) *cobra.Command {
	var out, in, list bool
	c := session.Connects(&cobra.Command{
		Use:   "forget ENTITY [CLIENT]",
		Short: "Remove what an agent has learned from one client",
		Long: `Removes all that is stored of a client: its votes, its words, and the keys of
its own. Keys for all stay: their descriptions have only words of several
clients. A wish that the client was the first to say stays if enough others
(rules.anonymity) have said it. --opt-out also keeps the agent from learning
anything of it from now on, in all scenarios, also before it has learned
something. --opt-in ends that, and removes nothing. --list lists the clients
that have opted out. What a client has said without a signature is of all such
clients together, and stays, unless the worker counts them by name
(learning.unsigned).`,
		Example: `  aeemesh schema forget agent.flights agent.assistant
  aeemesh schema forget agent.flights agent.assistant --opt-out
  aeemesh schema forget agent.flights --list`,
		Args:              outcome.Arguments("ENTITY", "[CLIENT]"),
		ValidArgsFunction: session.CompleteEntities(a, 1),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			for _, entity := range args {
				if err := checkEntity(cmd, entity); err != nil {
					return err
				}
			}
			switch {
			case out && in:
				return outcome.Usagef(cmd, "--opt-out and --opt-in exclude each other")
			case list != (len(args) == 1) || list && (out || in):
				return outcome.Usagef(cmd, "name a CLIENT, or list those that have opted out with --list")
			}
			return withStores(a, ctx, cmd, func(ctx context.Context, _ *jetstream.Templates, pools *jetstream.Pools) error {
				switch {
				case list:
					return listOptOuts(ctx, a, pools, args[0])
				case in:
					return optOut(ctx, a, pools, args[0], args[1], false)
				case out: // before the pools, as their workers expect
					if err := optOut(ctx, a, pools, args[0], args[1], true); err != nil {
						return err
					}
				}
				return forget(ctx, a, pools, args[0], args[1], out)
			})
		}),
	})
	c.Flags().BoolVar(&out, "opt-out", false, "learn nothing of it from now on")
	c.Flags().BoolVar(&in, "opt-in", false, "learn from it again; nothing is removed")
	c.Flags().BoolVar(&list, "list", false, "list the clients that have opted out")
	return c
}

// forget removes a client's data, and prints where there was some.
func forget(ctx context.Context, a *session.App, pools *jetstream.Pools, entity, client string, optedOut bool) error {
	gone, err := forgetIn(ctx, pools, entity, client, optedOut)
	for _, s := range gone {
		a.Term.Good("%s: what was learned from %s is gone", s.title(), client)
	}
	if len(gone) == 0 && err == nil {
		a.Term.Say("%s has nothing stored of %s", entity, client)
	}
	return err
}

// forgetIn removes a client's data from the pools of an agent, and returns the pools that had
// some. After an opt-out it stores each pool again, even one without data of the client, so that
// no worker can store older counts before it has read the opt-out.
func forgetIn(ctx context.Context, pools *jetstream.Pools, entity, client string, optedOut bool) (gone []*stock, err error) {
	records, err := pools.Current(ctx, entity)
	if err != nil {
		return nil, session.LaneError(err)
	}
	all, unread := decodePools(records, "") // the client is removed from the readable pools all the same
	had := map[*stock]bool{}
	changed, err := changePools(ctx, pools, entity, all, func(s *stock, now time.Time) error {
		had[s] = s.Forget(evolve.Client(client), now)
		if !had[s] && !optedOut {
			return errNothing
		}
		return nil
	})
	if errors.Is(err, errNothing) {
		err = nil
	}
	return slices.DeleteFunc(changed, func(s *stock) bool { return !had[s] }), errors.Join(err, unread)
}

// optOut stores that a client opts out of an agent's learning, or in again.
func optOut(ctx context.Context, a *session.App, pools *jetstream.Pools, entity, client string, out bool) error {
	for try := 0; ; try++ {
		list, revision, err := readOptOuts(ctx, pools, entity)
		if err != nil {
			return err
		}
		changed, err := list.Set(client, out)
		if err != nil {
			return err
		}
		if changed {
			raw, err := list.Encode()
			if err != nil {
				return err
			}
			_, err = pools.SwapOptOuts(ctx, entity, raw, revision)
			if errors.Is(err, jetstream.ErrChanged) && try < 10 {
				continue
			}
			if err != nil {
				return session.LaneError(err)
			}
		}
		switch {
		case out && changed:
			a.Term.Good("%s learns nothing from %s any more", entity, client)
		case out:
			a.Term.Say("%s has opted out already", client)
		case changed:
			a.Term.Good("%s learns from %s again", entity, client)
		default:
			a.Term.Say("%s has not opted out", client)
		}
		return nil
	}
}

func readOptOuts(ctx context.Context, pools *jetstream.Pools, entity string) (*learn.OptOuts, uint64, error) {
	raw, revision, err := pools.OptOuts(ctx, entity)
	if err != nil {
		return nil, 0, session.LaneError(err)
	}
	list, err := learn.ReadOptOuts(raw)
	return list, revision, err
}

func listOptOuts(ctx context.Context, a *session.App, pools *jetstream.Pools, entity string) error {
	list, _, err := readOptOuts(ctx, pools, entity)
	switch {
	case err != nil:
		return err
	case a.Term.JSON:
		return a.Term.Object(map[string]any{"entity": entity, "opted_out": append([]string{}, list.Clients...)})
	case len(list.Clients) == 0:
		a.Term.Say("no client has opted out of what %s learns", entity)
		return nil
	}
	a.Term.Line("%s", strings.Join(list.Clients, "\n"))
	return nil
}

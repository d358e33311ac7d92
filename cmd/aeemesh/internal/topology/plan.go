package topology

import (
	"context"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream"
)

// PlanCommand is "aeemesh plan".
func PlanCommand(a *session.App) *cobra.Command {
	f := &topologyFlags{}
	var check bool
	c := session.Connects(&cobra.Command{
		Use:   "plan",
		Short: "Show what \"apply\" would make or change on the server",
		Long: `Compares the mesh's streams, buckets and, for each --entity, work consumers with
the server, and changes nothing. Existing limits are their operator's: they are
compared only where a flag asks for others, or where they break a promise.

The exit status is 0 whatever is found, unless --check is given: then it is 1
if "apply" would make or change something, or could not correct it. Servers that
are offline are warned of, and do not count: "doctor" fails then.`,
		Example: `  aeemesh plan
  aeemesh plan --entity agent.reviewer --entity agent.billing
  aeemesh plan --replicas 3 --limit AEE_WORK=max_bytes:1GiB --limit aee_state=max_bytes:4GiB,max_age:90d
  aeemesh plan --check || echo "the server is not as it should be"
  aeemesh plan --json | jq 'select(.action != "none")'

  # with the nats CLI, what there is:
  nats stream ls --all`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			return withTopology(a, ctx, cmd, f, func(ctx context.Context, js natsjs.JetStream, opts jetstream.Options) error {
				changes, err := planned(a, ctx, js, opts)
				if err != nil {
					return err
				}
				if err := showChanges(a, changes); err != nil {
					return err
				}
				t := Count(changes)
				left := notDone(changes, cmd.Flags().Changed("storage"))
				tellVersions(a, t)
				tellNotDone(a, left, "would keep")
				broken := tellBroken(a, changes)
				tellTally(a, t, len(left)+broken+tellGroups(a, changes))
				if check && (t.Todo()+t.conflict+len(left)+broken > 0 || askedOfNewer(cmd, opts, changes)) {
					return outcome.ErrQuiet
				}
				return nil
			})
		}),
	})
	f.add(c)
	c.Flags().BoolVar(&check, "check", false, "exit with status 1 if something would be done, or cannot be corrected")
	return c
}

// tellTally prints a summary of a plan; left is the number of settings that
// would stay as they are.
func tellTally(a *session.App, t tally, left int) {
	switch {
	case t.conflict > 0:
		a.Term.Warn("%d cannot be corrected without losing what they hold; that is for you to decide", t.conflict)
	case t.Todo() == 0 && t.newer == 0 && left == 0:
		a.Term.Good("everything is as it should be")
	}
	if t.Todo() == 0 {
		return
	}
	room := ""
	if t.reserves > 0 {
		room = ", and set aside " + term.Size(uint64(t.reserves)) + " of storage on each replica"
	}
	a.Term.Say("\"aeemesh apply\" would make %d and change %d%s", t.create, t.update, room)
}

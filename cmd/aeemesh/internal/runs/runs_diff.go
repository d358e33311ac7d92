package runs

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/state"
)

func runsDiffCommand(a *session.App) *cobra.Command {
	var entity string
	c := session.Connects(&cobra.Command{
		Use:   "diff RUN [FROM] [TO]",
		Short: "Show what changed between two checkpoints",
		Long: `Shows what differs between two checkpoints of a run, by their revisions: FROM is
by default the one before the last, TO the last.`,
		Example: `  aeemesh runs diff 0f4c
  aeemesh runs diff 0f4c 17 21
  aeemesh runs diff 0f4c 17 --json`,
		Args:              outcome.Arguments("RUN", "[FROM]", "[TO]"),
		ValidArgsFunction: session.Completing(a, CompleteRuns),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			var revisions []uint64
			for _, arg := range args[1:] {
				n, err := strconv.ParseUint(arg, 10, 64)
				if err != nil || n == 0 {
					return outcome.Usagef(cmd, "%q is no revision; \"aeemesh runs show RUN\" lists them", arg)
				}
				revisions = append(revisions, n)
			}
			return aboutRun(a, ctx, cmd, (*Store).Look, args[0], entity, session.Options{}, func(_ *session.Session, runs *Store, rec state.Record) error {
				return diffRun(a, ctx, runs, rec, revisions)
			})
		}),
	})
	EntityFlag(c, &entity)
	a.AddStateKeyFlag(c.Flags())
	return c
}

func diffRun(a *session.App, ctx context.Context, runs *Store, last state.Record, revisions []uint64) error {
	history, err := runs.History(ctx, last.ID)
	if err != nil {
		return err
	}
	from, to := history[max(0, len(history)-2)], history[len(history)-1]
	for i, side := range []*state.Record{&from, &to} {
		if i >= len(revisions) {
			break
		}
		if *side, err = runs.At(ctx, last.ID, revisions[i]); err != nil {
			return notKept(err, revisions[i])
		}
	}
	a1, err := runs.decode(from)
	if err != nil {
		return err
	}
	b1, err := runs.decode(to)
	if err != nil {
		return err
	}
	changes, err := state.Diff(a1, b1)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		a.Term.Say("revisions %d and %d are the same", from.Revision, to.Revision)
	}
	for _, c := range changes {
		if a.Term.JSON {
			if err := a.Term.Object(c); err != nil {
				return err
			}
			continue
		}
		a.Term.Line("%s", term.OneLine(c.String()))
	}
	return nil
}

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/state"
)

func (a *app) runsFollowCommand() *cobra.Command {
	var entity string
	c := connects(&cobra.Command{
		Use:   "follow RUN",
		Short: "Show a run's steps as they are committed, until it ends",
		Long: `Shows the checkpoints that are kept, then each new one as it is committed. Ends
when the run does, with exit status 0 if it completed and 1 if it failed.`,
		Example: `  aeemesh runs follow 0f4c
  aeemesh runs follow 0f4c --json`,
		Args:              arguments("RUN"),
		ValidArgsFunction: a.completeRuns,
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return a.aboutRun(ctx, cmd, args[0], entity, func(runs *runStore, rec state.Record) error {
				return a.followRun(ctx, runs, rec.ID)
			})
		}),
	})
	a.entityFlag(c, &entity)
	a.addStateKeyFlag(c.Flags())
	return c
}

// errRunFailed ends a follow whose run failed; the timeline has said why.
var errRunFailed = errors.New("the run failed")

func (a *app) followRun(ctx context.Context, runs *runStore, id state.ID) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	shown := uint64(0)
	err := runs.Watch(ctx, id, func(rec state.Record) {
		if rec.Revision <= shown {
			return
		}
		if len(rec.Data) == 0 {
			stop(hinted(errors.New("the run was deleted"), ""))
			return
		}
		// Steps that followed one another quickly come as one: the history has
		// them all.
		history, err := runs.History(ctx, id)
		if err != nil {
			history = []state.Record{rec}
		}
		for _, m := range state.Timeline(runs.codec, history) {
			if m.Revision <= shown {
				continue
			}
			shown = m.Revision
			if err := a.followed(m); err != nil {
				stop(err)
			}
			if state.Terminal(m.Status) {
				stop(errEnded{failed: m.Status == "failed"})
			}
		}
	})
	var ended errEnded
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &ended) && ended.failed:
		return hinted(errRunFailed, "\"aeemesh runs show %s\" has its error.", shortRun(id.Run))
	case errors.As(cause, &ended):
		return nil
	case cause != nil && !errors.Is(cause, context.Canceled):
		return cause
	}
	return err
}

// errEnded stops a follow because the run has ended.
type errEnded struct{ failed bool }

func (errEnded) Error() string { return "the run has ended" }

func (a *app) followed(m state.Moment) error {
	if a.term.json {
		return a.term.object(m)
	}
	a.term.line("%s  %-8d %-21s %-20s %s", m.At.Local().Format("15:04:05.000"), m.Revision, m.Status, oneLine(stepName(m)), oneLine(joinEvents(m)))
	return nil
}

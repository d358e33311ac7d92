package runs

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

func runsFollowCommand(a *session.App) *cobra.Command {
	var entity string
	c := session.Connects(&cobra.Command{
		Use:   "follow RUN",
		Short: "Show a run's steps as they are committed, until it ends",
		Long: `Shows the checkpoints that are kept, then each new one as it is committed. Ends
when the run does, with exit status 0 if it completed and 1 if it failed. If it
is stopped before, it ends with 1, and after --timeout with 5.`,
		Example: `  aeemesh runs follow 0f4c
  aeemesh runs follow 0f4c --json`,
		Args:              outcome.Arguments("RUN"),
		ValidArgsFunction: session.Completing(a, CompleteRuns),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return aboutRun(a, ctx, cmd, (*Store).Look, args[0], entity, session.Options{}, func(_ *session.Session, runs *Store, rec state.Record) error {
				return followRun(a, ctx, runs, rec.ID)
			})
		}),
	})
	EntityFlag(c, &entity)
	a.AddStateKeyFlag(c.Flags())
	return c
}

// errRunFailed ends a follow whose run failed; the timeline has shown why.
var errRunFailed = errors.New("the run failed")

func followRun(a *session.App, ctx context.Context, runs *Store, id state.ID) error {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	ctx, stop := context.WithCancelCause(limited)
	defer stop(nil)
	shown := uint64(0)
	view := newFollowView(a.Term)
	err := jetstream.WatchRun(ctx, runs.Store, id, func(rec state.Record) {
		if rec.Revision <= shown {
			return
		}
		if len(rec.Data) == 0 {
			stop(outcome.Hinted(errors.New("the run was deleted"), ""))
			return
		}
		// Steps in quick succession arrive as one; the history has all of them.
		history, err := runs.History(ctx, id)
		if err != nil {
			history = []state.Record{rec}
		}
		fresh := slices.DeleteFunc(state.Timeline(runs.Codec, history), func(m state.Moment) bool { return m.Revision <= shown })
		if err := view.show(fresh); err != nil {
			stop(err)
		}
		if len(fresh) == 0 {
			return
		}
		newest := fresh[len(fresh)-1] // an end before it was that of a dead letter, which was retried
		shown = newest.Revision
		if state.Terminal(newest.Status) {
			stop(errEnded{failed: newest.Status == "failed"})
		}
	})
	var ended errEnded
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &ended) && ended.failed:
		return outcome.Hinted(errRunFailed, "\"aeemesh runs show %s\" has its error.", ShortRun(id.Run))
	case errors.As(cause, &ended):
		return nil
	case cause != nil && !errors.Is(cause, context.Cause(limited)):
		return cause
	case cause != nil:
		return outcome.Hinted(outcome.Stopped(limited.Err(), "stopped watching; the run goes on"), "\"aeemesh runs follow %s\" goes on looking.", ShortRun(id.Run))
	}
	return err
}

// errEnded ends a follow because the run has ended.
type errEnded struct{ failed bool }

func (errEnded) Error() string { return "the run has ended" }

// followView prints a run's steps as they happen, in columns that grow.
type followView struct {
	term    *term.Terminal
	columns term.Columns
}

// newFollowView starts with column widths that suit most runs.
func newFollowView(t *term.Terminal) *followView {
	return &followView{term: t, columns: term.Columns{Widths: []int{12, 8, len(aaif.RunAwaitingApproval), 20}}}
}

func (v *followView) show(moments []state.Moment) error {
	rows := make([][]string, len(moments))
	for i, m := range moments {
		if v.term.JSON {
			if err := v.term.Object(m); err != nil {
				return err
			}
			continue
		}
		rows[i] = []string{m.At.Local().Format("15:04:05.000"), strconv.FormatUint(m.Revision, 10), string(m.Status), term.OneLine(stepName(m)), term.OneLine(joinEvents(m))}
		v.columns.See(rows[i])
	}
	if v.term.JSON {
		return nil
	}
	for _, cells := range rows {
		v.term.Line("%s", v.columns.Line(cells))
	}
	return nil
}

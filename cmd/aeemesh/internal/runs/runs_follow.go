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
	shown := uint64(0)
	view := newFollowView(a.Term)
	err := runs.eachChange(limited, id, func(history []state.Record) error {
		fresh := slices.DeleteFunc(state.Timeline(runs.Codec, history), func(m state.Moment) bool { return m.Revision <= shown })
		if err := view.show(fresh); err != nil || len(fresh) == 0 {
			return err
		}
		newest := fresh[len(fresh)-1] // an end before it was that of a dead letter, which was retried
		shown = newest.Revision
		switch {
		case newest.Status == "failed":
			return outcome.Hinted(errRunFailed, "\"aeemesh runs show %s\" has its error.", ShortRun(id.Run))
		case state.Terminal(newest.Status):
			return errEnded
		}
		return nil
	})
	switch ended := context.Cause(limited); {
	case errors.Is(err, errEnded):
		return nil
	case ended != nil && errors.Is(err, ended):
		return outcome.Hinted(outcome.Stopped(limited.Err(), "stopped watching; the run goes on"), "\"aeemesh runs follow %s\" goes on looking.", ShortRun(id.Run))
	}
	return err
}

// errEnded ends a follow because the run has ended, and has not failed.
var errEnded = errors.New("the run has ended")

// eachChange calls show with the history of a run, at once and after each change, until show returns
// an error, which eachChange returns as it is, the run is deleted, or ctx ends. Quick changes arrive
// as one. If the history cannot be read, show gets the newest record alone.
func (s *Store) eachChange(ctx context.Context, id state.ID, show func(history []state.Record) error) error {
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := jetstream.WatchRun(watching, s.Store, id, func(rec state.Record) {
		if len(rec.Data) == 0 {
			stop(outcome.Hinted(errors.New("the run was deleted"), ""))
			return
		}
		history, err := s.History(watching, id)
		if err != nil || len(history) == 0 {
			history = []state.Record{rec}
		}
		if err := show(history); err != nil {
			stop(err)
		}
	})
	if err != nil {
		return err
	}
	return context.Cause(watching)
}

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

package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
)

func janitorCommand(a *session.App) *cobra.Command {
	var every time.Duration
	c := session.Connects(&cobra.Command{
		Use:   "janitor",
		Short: "Make room in the stores of runs, and restore overwritten records",
		Long: `Does what workers do beside their tasks, and cannot do where their NATS users
may reach only their own agents ("aeemesh auth perms"): it deletes ended runs
where aee_state or aee_state_objects is over three quarters full, and documents
that no record refers to. It restores records of runs that another client has
overwritten. It changes nothing else, and may run beside workers and other
janitors.

Run it from a timer, or with --every as a service. It needs the permissions that
"aeemesh auth perms --operator" prints.`,
		Example: `  aeemesh janitor
  aeemesh janitor --every 30s`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("every") && every < time.Second {
				return outcome.Usagef(cmd, "--every %v: it must be at least 1s", every)
			}
			if every > 0 {
				a.BeginLog(cmd)
			}
			s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Long: every > 0})
			if err != nil {
				return err
			}
			defer s.Close()
			if every > 0 {
				states, err := openStates(s)
				if err != nil {
					return err
				}
				return keepTidy(ctx, states, a.Log, every)
			}
			return tidyUp(s, ctx)
		}),
	})
	c.Flags().DurationVar(&every, "every", 0, "repeat with this `pause` until stopped")
	return c
}

// tidied is what "janitor --json" prints.
type tidied struct {
	Runs     int     `json:"runs"`     // ended runs that were deleted with their history
	Objects  int     `json:"objects"`  // deleted objects without a record that refers to them
	Restored int     `json:"restored"` // records that were restored
	Used     float64 `json:"used"`     // the share of the fuller store that was used before
}

func (d tidied) changed() int { return d.Runs + d.Objects + d.Restored }

// tidyUp runs the janitor once.
func tidyUp(s *session.Session, ctx context.Context) error {
	a := s.App
	states, err := openStates(s)
	if err != nil {
		return err
	}
	done, failed := tidyStates(ctx, states)
	switch {
	case failed != nil && done.changed() == 0:
		return session.LaneError(failed)
	case a.Term.JSON:
		if err := a.Term.Object(done); err != nil {
			return err
		}
		return session.LaneError(failed)
	}
	a.Term.Good("deleted %s and %s, restored %s; the stores were %.0f%% full", term.Counted(done.Runs, "run that had ended", "runs that had ended"),
		term.Counted(done.Objects, "document of no run", "documents of no run"), term.Counted(done.Restored, "record", "records"), 100*done.Used)
	return session.LaneError(failed)
}

// A tidyStore is a store of runs that the janitor tidies.
type tidyStore interface {
	jetstream.Sweeper
	Restore(ctx context.Context) (int, error)
}

// tidyStates makes one pass: a record that cannot be restored does not keep it from making room.
func tidyStates(ctx context.Context, states tidyStore) (tidied, error) {
	restored, unrestored := states.Restore(ctx)
	swept, unswept := states.Sweep(ctx, jetstream.SweepOptions{})
	done := tidied{Runs: swept.Runs, Objects: swept.Objects, Restored: restored, Used: swept.Used}
	switch {
	case unrestored == nil:
		return done, unswept
	case unswept == nil || strings.Contains(unrestored.Error(), unswept.Error()): // both failed for one reason
		return done, unrestored
	}
	return done, errors.Join(unrestored, unswept)
}

// keepTidy runs the janitor repeatedly until ctx ends. A failed pass is
// reported, and the next one runs nevertheless. A pass has no deadline, because that of a large
// store takes minutes; its single requests have one each.
func keepTidy(ctx context.Context, states tidyStore, log *slog.Logger, every time.Duration) error {
	for {
		done, err := tidyStates(ctx, states)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrDenied) && !jetstream.Away(err):
			return session.LaneError(err)
		case err != nil:
			log.Warn("not tidied", "err", err)
		}
		if done.changed() > 0 {
			log.LogAttrs(ctx, slog.LevelInfo, "tidied", slog.Int("runs", done.Runs), slog.Int("objects", done.Objects), slog.Int("restored", done.Restored), slog.Float64("used", done.Used))
		}
		if !pause.For(ctx, every) {
			return nil
		}
	}
}

// openStates opens the store of the mesh's runs.
func openStates(s *session.Session) (*jetstream.States, error) {
	js, m, err := s.App.Streams(s.Conn)
	if err != nil {
		return nil, err
	}
	return jetstream.NewStates(js, m), nil
}

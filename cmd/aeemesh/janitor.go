package main

import (
	"context"
	"errors"
	"log/slog"
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
				return keepTidy(s, ctx, every)
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

// tidyUp runs the janitor once.
func tidyUp(s *session.Session, ctx context.Context) error {
	a := s.App
	states, err := openStates(s)
	if err != nil {
		return err
	}
	done, err := tidyStates(ctx, states)
	if err != nil {
		return session.LaneError(err)
	}
	if a.Term.JSON {
		return a.Term.Object(done)
	}
	a.Term.Good("deleted %s and %s, restored %s; the stores were %.0f%% full", term.Counted(done.Runs, "run that had ended", "runs that had ended"),
		term.Counted(done.Objects, "document of no run", "documents of no run"), term.Counted(done.Restored, "record", "records"), 100*done.Used)
	return nil
}

func tidyStates(ctx context.Context, states *jetstream.States) (tidied, error) {
	var done tidied
	var err error
	if done.Restored, err = states.Restore(ctx); err != nil {
		return done, err
	}
	swept, err := states.Sweep(ctx, jetstream.SweepOptions{})
	done.Runs, done.Objects, done.Used = swept.Runs, swept.Objects, swept.Used
	return done, err
}

// keepTidy runs the janitor repeatedly until ctx ends. A failed pass is
// reported, and the next one runs nevertheless.
func keepTidy(s *session.Session, ctx context.Context, every time.Duration) error {
	a := s.App
	states, err := openStates(s)
	if err != nil {
		return err
	}
	for {
		pass, cancel := context.WithTimeout(ctx, max(every, a.Conn.Wait()))
		done, err := tidyStates(pass, states)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrDenied):
			return session.LaneError(err)
		case err != nil:
			a.Log.Warn("not tidied", "err", err)
		case done.Runs+done.Objects+done.Restored > 0:
			a.Log.LogAttrs(ctx, slog.LevelInfo, "tidied", slog.Int("runs", done.Runs), slog.Int("objects", done.Objects), slog.Int("restored", done.Restored), slog.Float64("used", done.Used))
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

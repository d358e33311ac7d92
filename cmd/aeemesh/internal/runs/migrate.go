package runs

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

type migrateFlags struct {
	to, entity, reason string
	wait, tools        time.Duration
	abort              bool
	export             exportFlags
}

// MigrateCommand is "aeemesh migrate".
func MigrateCommand(a *session.App) *cobra.Command {
	f := &migrateFlags{}
	c := session.Connects(&cobra.Command{
		Use:   "migrate RUN --to WHERE",
		Short: "Move a run to another worker, or to another platform",
		Long: `Moves a run while it runs: between two turns, in the middle of one, while it
awaits a tool, or while it is paused. Its listeners miss nothing and receive
nothing twice. WHERE is

  any            another worker of the same agent
  INSTANCE       this one ("aeemesh agents describe" lists them)
  https://…      the receiver of another platform ("aeemesh handoff serve"); the
                 run's worker must have been started with --handoff-to
  file:PATH      a file for another platform, with --for and --seal or --clear:
                 see "aeemesh runs export"
  object:BUCKET/NAME   the same in an object store

If the move fails the run goes on where it is. Prints each phase, and for how
long the run stood still: from the last step or word at its source to the first
at its target, by the server's clock. Of a run on another platform only the
replies are seen here, so the time lasts until the first of them.

Where workers sign, it checks their answers, and needs the keys that they are
trusted by: --keys, the default directory, or --shared-keys.`,
		Example: `  aeemesh migrate 0f4c --to any
  aeemesh migrate 0f4c --to QOY2xPTN8lxRpyVUwFBbWf
  aeemesh migrate 0f4c --to https://paris.example:7443
  aeemesh migrate 0f4c --abort                          # as long as it has not left`,
		Args:              outcome.Arguments("RUN"),
		ValidArgsFunction: session.Completing(a, CompleteRuns),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return migrateRun(a, ctx, cmd, f, args[0])
		}),
	})
	flags := c.Flags()
	flags.StringVar(&f.to, "to", "", "`where`: any, an instance, an https URL, file:PATH or object:BUCKET/NAME")
	flags.DurationVar(&f.tools, "tools", 0, "how long to wait for tool calls that are under way, before the run is moved with them (default as long as they take)")
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long to watch the move")
	flags.BoolVar(&f.abort, "abort", false, "take back a move that has not ended")
	flags.StringVar(&f.reason, "reason", "", "why, for the record")
	f.export.add(a, flags)
	EntityFlag(c, &f.entity)
	flags.StringVar(&a.As, "from", "", "who asks: an `entity` (default the key's, where it has one, else human.<your login>)")
	session.BindEnv(flags, "from", "AEEMESH_FROM")
	a.AddStateKeyFlag(flags)
	a.AddSignFlags(flags, session.SignAll)
	return c
}

func migrateRun(a *session.App, ctx context.Context, cmd *cobra.Command, f *migrateFlags, name string) error {
	file, isFile := strings.CutPrefix(f.to, "file:")
	if _, _, isObject := object(f.to); isObject {
		file, isFile = f.to, true
	}
	switch {
	case f.abort == (f.to != ""):
		return outcome.Usagef(cmd, "give the target with --to, or take a move back with --abort")
	case f.tools < 0 || f.wait <= 0:
		return outcome.Usagef(cmd, "--tools cannot be negative, and --wait must be above 0")
	case strings.HasPrefix(f.to, "http://"):
		return outcome.Hinted(outcome.Usagef(cmd, "--to %s: a run goes over TLS only", f.to), "Begin the URL with https://.")
	case isFile && f.export.platform == "":
		return outcome.Hinted(outcome.Usagef(cmd, "--to %s: say with --for which platform it is for", f.to), "\"aeemesh runs export\" writes a copy of a run that stays here.")
	case isFile:
		f.export.out = file
		return exportRun(a, ctx, cmd, &f.export, name, f.entity)
	}
	if err := CheckEntity(cmd, f.entity); err != nil {
		return err
	}
	s, err := a.Open(ctx, cmd, session.Options{Entity: cmp.Or(a.As, a.DefaultFrom()), Signed: true, Config: a.LaneClient(cmd)})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	runs, err := Open(a, cmd, s)
	if err != nil {
		return err
	}
	rec, h, err := runs.Find(ctx, name, f.entity)
	if err != nil {
		return err
	}
	if state.Terminal(h.Status) {
		return endedBefore(h.Run, h.Status)
	}
	if h.Owner != "" && h.Owner == f.to && h.Status != aaif.RunMigrating {
		return outcome.Hinted(outcome.Conflict("run %s is there already", ShortRun(h.Run)), "\"aeemesh agents describe %s\" lists the other workers; --to any takes one of them.", h.Entity)
	}
	a.Term.Progress("asking the workers of %s", h.Entity)
	got, err := s.Node.Command(ctx, h.Entity, intents.MigrateTask{
		Target: intents.Target{Run: h.Run}, To: f.to, WaitMS: f.tools.Milliseconds(), Abort: f.abort, Reason: f.reason,
	})
	var problem *envelope.Error
	if errors.As(err, &problem) && problem.Code == envelope.CodeNotFound && !strings.Contains(f.to, ":") {
		return outcome.Hinted(commandFailed(a, err, h.Entity), "\"aeemesh agents describe %s\" lists its workers; --to any takes one of them.", h.Entity)
	}
	if err != nil {
		return commandFailed(a, err, h.Entity)
	}
	switch status := aaif.RunStatus(got.Status); {
	case !got.Migrating && state.Terminal(status):
		return endedBefore(h.Run, status)
	case !got.Migrating:
		return outcome.Hinted(outcome.Conflict("run %s is not moved: it is %s", ShortRun(h.Run), got.Status), shownHint, ShortRun(h.Run))
	case f.abort:
		if a.Term.JSON {
			return a.Term.Object(got)
		}
		a.Term.Good("run %s: the move is taken back; it is now %s", ShortRun(h.Run), got.Status)
		return nil
	}
	return watchMove(a, ctx, s, runs, rec.ID, f.to)
}

// endedBefore is the error of a move of a run that has ended.
func endedBefore(run string, status aaif.RunStatus) error {
	return outcome.Hinted(outcome.Conflict("run %s has ended: it is %s", ShortRun(run), status), "\"aeemesh runs list --status running,paused\" shows those that can be moved.")
}

// watchMove prints the phases of a transfer until it ends.
func watchMove(a *session.App, ctx context.Context, s *session.Session, runs *Store, id state.ID, to string) error {
	m := &movement{app: a, id: id, runs: runs, to: to}
	d, err := s.Lane()
	if err != nil {
		return err
	}
	m.replies = d.Replies
	err = m.follow(ctx)
	switch {
	case errors.Is(err, errStandsStill):
		a.Term.Say("run %s has not moved yet: it waits, and moves when it goes on", ShortRun(id.Run))
		return nil
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return outcome.Hinted(outcome.Stopped(err, "stopped watching; the move goes on"), "\"aeemesh runs show %s\" shows how it went; \"aeemesh migrate %s --abort\" takes it back.", ShortRun(id.Run), ShortRun(id.Run))
	case err != nil:
		return err
	}
	return m.tellPause(ctx)
}

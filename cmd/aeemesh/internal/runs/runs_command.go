package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/canceltree"
	"github.com/aeemesh/aeemesh/state"
)

// A runCommand is pause, resume, cancel, steer or settle. They differ in the
// command that is sent to the run's agent.
type runCommand struct {
	use, short, long, example string
	args                      []string
	flags                     func(*cobra.Command)
	// make builds the command about a run, from the arguments after the run.
	make func(cmd *cobra.Command, target intents.Target, args []string) (intents.Command, error)
	done string // describes the result when the command has succeeded
}

func runCommands(a *session.App) []*cobra.Command {
	var reason string
	because := func(c *cobra.Command) { c.Flags().StringVar(&reason, "reason", "", "why, for the record") }
	var s settleFlags
	var out []*cobra.Command
	for _, r := range []runCommand{
		{use: "pause", short: "Pause a run after its current step", done: "paused",
			long: `Asks the run's worker to stop it after the step that it is in, or in the middle
of a model's turn. It stays paused, across restarts, until it is resumed.`,
			example: `  aeemesh runs pause 0f4c --reason "the API is down"`, flags: because,
			make: func(_ *cobra.Command, t intents.Target, _ []string) (intents.Command, error) {
				return intents.PauseTask{Target: t, Reason: reason}, nil
			}},
		{use: "resume", short: "Resume a paused run", done: "resumed",
			long:    "Resumes a paused run, on any worker of its agent that has a place.",
			example: `  aeemesh runs resume 0f4c`, flags: because,
			make: func(_ *cobra.Command, t intents.Target, _ []string) (intents.Command, error) {
				return intents.ResumeTask{Target: t, Reason: reason}, nil
			}},
		{use: "cancel", short: "Cancel a run; its sender gets E_CANCELLED", done: "cancelled",
			long: `Ends a run, or a task that waits in the queue or for its time. Its sender gets
an error envelope, E_CANCELLED. Tools that are being called are told to stop,
and the run's calls of other agents end too: an operator cancels all tasks that
the records of the tree name. Tasks that could not be reached are listed.

A task that no worker has begun, of an agent without workers, is removed from
the queue. That needs an operator's NATS user (docs/operations.md); without it
the command waits in the queue for the first worker.`,
			example: `  aeemesh runs cancel 0f4c --reason "wrong branch"
  aeemesh runs cancel 01JD3YZ8M4... -e agent.writer      # a task that has not begun`, flags: because,
			make: func(_ *cobra.Command, t intents.Target, _ []string) (intents.Command, error) {
				return intents.CancelTask{ID: t.ID, Run: t.Run, Reason: reason}, nil
			}},
		{use: "steer", short: "Give a run a message for its next turn", done: "steered", args: []string{"TEXT"},
			long: `Puts a user's message in front of the model's next turn. Agents without turns,
such as programs and most teams, refuse it: steer the run of a team's member.`,
			example: `  aeemesh runs steer 0f4c "leave the vendored files alone"`,
			make: func(cmd *cobra.Command, t intents.Target, args []string) (intents.Command, error) {
				if args[0] == "" {
					return nil, outcome.Usagef(cmd, "TEXT is empty")
				}
				return intents.SteerTask{Target: t, Text: args[0]}, nil
			}},
		{use: "settle", short: "State the outcome of a lost tool call", done: "settled", args: []string{"[CALL]"},
			long: `A worker that dies between beginning a tool call and writing its receipt leaves
a lost call: it may have happened or not. Where the tool is not safe to repeat,
the run waits for you. Find out, then state the outcome. CALL is the tool call's
id; without it all lost calls of the run are settled alike. The run goes on when
none is left.

An outcome is stated once. The same outcome may be stated again; another one is
refused, and the error says who has stated the first.`,
			example: `  aeemesh runs settle 0f4c call_1 --done '{"sent":true}'     # it happened; this is its result
  aeemesh runs settle 0f4c call_1 --failed "never arrived"   # it did not; the model is told
  aeemesh runs settle 0f4c call_1 --repeat                   # call again, under the same key`, flags: s.add, make: s.command},
	} {
		out = append(out, runCommandOf(a, r))
	}
	return out
}

func runCommandOf(a *session.App, r runCommand) *cobra.Command {
	var entity string
	c := session.Connects(&cobra.Command{
		Use: r.use + " RUN", Short: r.short, Long: r.long, Example: r.example, Args: outcome.Arguments(append([]string{"RUN"}, r.args...)...),
		ValidArgsFunction: session.Completing(a, CompleteRuns),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return commandRun(a, ctx, cmd, r, args, entity)
		}),
	})
	for _, arg := range r.args {
		c.Use += " " + arg
	}
	EntityFlag(c, &entity)
	if r.flags != nil {
		r.flags(c)
	}
	c.Flags().StringVar(&a.As, "from", "", "who asks: an `entity` (default the key's, where it has one, else human.<your login>)")
	session.BindEnv(c.Flags(), "from", "AEEMESH_FROM")
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

func commandRun(a *session.App, ctx context.Context, cmd *cobra.Command, r runCommand, args []string, entity string) error {
	if err := CheckEntity(cmd, entity); err != nil {
		return err
	}
	s, err := a.Open(ctx, cmd, session.Options{Entity: cmp.Or(a.As, a.DefaultFrom()), Signed: true, Config: a.LaneClient(cmd)})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.Conn.Timeout, commandWait))
	defer cancel()
	runs, err := Open(a, cmd, s)
	if err != nil {
		return err
	}
	target := intents.Target{}
	_, h, err := runs.Find(ctx, args[0], entity)
	switch {
	case err == nil:
		entity, target.Run = h.Entity, h.Run
	case entity != "" && errors.Is(err, state.ErrNotFound) && len(args[0]) >= leastID && !ofRun(args[0]):
		target.ID = args[0] // the run has not begun: the agent stores the command until it does
	case errors.Is(err, state.ErrNotFound):
		// A scheduled task is found without its agent's name.
		w, none := waiting(ctx, s, args[0], entity)
		switch {
		case none == nil:
			target.ID, entity = w.ID, w.Entity
		case errors.Is(none, state.ErrNotFound), errors.Is(none, jetstream.ErrNotFound), errors.Is(none, jetstream.ErrDenied):
			return err
		default:
			return none
		}
	default:
		return err
	}
	command, err := r.make(cmd, target, args[1:])
	if err != nil {
		return err
	}
	a.Term.Progress("asking the workers of %s", entity)
	silence := time.AfterFunc(silentFor, func() { a.Term.Warn("%s", stillSilent(s.Conn.IsConnected(), entity)) })
	defer silence.Stop()
	var got intents.CommandResult
	var below *canceltree.Below
	if c, ok := command.(intents.CancelTask); ok {
		below = &canceltree.Below{}
		got, *below, err = canceltree.Cancel(ctx, s.Node, a.Log, entity, c)
		defer toldBelow(a, below)
	} else {
		got, err = s.Node.Command(ctx, entity, command)
	}
	if target.ID != "" && errors.Is(err, jetstream.ErrNotFound) && !errors.Is(err, jetstream.ErrUnavailable) {
		return outcome.Hinted(outcome.NotFound("no task %s of %s waits, and none has begun", term.Printable(target.ID), entity),
			"\"aeemesh queues %s\" shows what waits, \"aeemesh result %s %s\" whether it has been answered.", entity, term.Printable(target.ID), entity)
	}
	var problem *envelope.Error
	_, settles := command.(intents.SettleTask)
	if errors.As(err, &problem) && (problem.Code == envelope.CodeNotFound || settles && problem.Code == envelope.CodeDenied) && target.Run != "" {
		return outcome.Hinted(commandFailed(a, err, entity), shownHint, ShortRun(target.Run))
	}
	if err != nil {
		return commandFailed(a, err, entity)
	}
	if a.Term.JSON {
		if err := a.Term.Object(commandOutput{got, below}); err != nil {
			return err
		}
	}
	kind, name := "task", term.Printable(target.ID)
	if target.Run != "" {
		kind, name = "run", ShortRun(target.Run)
	}
	return commanded(a, r, kind, name, got)
}

// shownHint is the hint for a command that a run cannot obey as it is now.
const shownHint = "\"aeemesh runs show %s\" shows what it has done, and what it waits for."

// commandWait is how long to wait, without --timeout, for the answer to a
// command that no worker receives. The command stays queued.
const commandWait = 30 * time.Second

// silentFor is how long to wait for the answer to a command without printing
// anything.
const silentFor = 3 * time.Second

// stillSilent says what the wait for the answer to a command is for. The command may be in the queue
// by then, or not yet: the server may be choosing a leader, or workers are asked for first.
func stillSilent(connected bool, entity string) string {
	if !connected {
		return "the connection to NATS is lost: whether a worker of " + entity + " has the command is not known; this waits for the connection and the answer (--timeout bounds that)"
	}
	return "no worker of " + entity + " has answered yet; once the command is stored, the first that comes applies it, and this waits for its answer (--timeout bounds that)"
}

// notBegun says instead of the error about a missing run what its task waits for, if the task is
// scheduled, due or queued.
func notBegun(ctx context.Context, s *session.Session, name, entity string, err error) error {
	if !errors.Is(err, state.ErrNotFound) {
		return err
	}
	w, none := waiting(ctx, s, name, entity)
	if none != nil {
		return err
	}
	id := term.Printable(w.ID)
	if w.Due.IsZero() {
		return outcome.Hinted(outcome.NotFound("task %s has no run yet: it waits for a worker of %s", id, w.Entity),
			"\"aeemesh result %s %s --follow\" waits for its answer, \"aeemesh runs cancel %s -e %s\" takes it back; \"aeemesh queues %s\" shows what waits.", id, w.Entity, id, w.Entity, w.Entity)
	}
	due := w.Due.Local().Format("2006-01-02 15:04:05 MST")
	return outcome.Hinted(outcome.NotFound("task %s has no run yet: it is scheduled, and %s gets it at %s", id, w.Entity, due),
		"\"aeemesh result %s %s --follow\" waits for its answer, \"aeemesh runs cancel %s\" takes it back; \"aeemesh queues\" counts what is scheduled.", id, w.Entity, id)
}

// leastID is the minimum length of a task id (mesh.task.cancel's schema).
const leastID = 8

// commanded prints the result of a command for a run or a task, by its kind and name. A command
// that found nothing to do has failed.
func commanded(a *session.App, r runCommand, kind, name string, got intents.CommandResult) error {
	what := kind + " " + name
	switch {
	case !(got.Cancelled || got.Paused || got.Resumed || got.Steered || got.Settled || got.Migrating):
		if state.Terminal(aaif.RunStatus(got.Status)) {
			return outcome.Hinted(outcome.Conflict("%s has ended already: it is %s", what, got.Status), "\"aeemesh runs fork\" goes on from one of its checkpoints, if it has any.")
		}
		return outcome.Hinted(outcome.Conflict("%s is not %s: it is %s", what, r.done, cmp.Or(got.Status, "in no state for it")), shownHint, name)
	case a.Term.JSON:
	case got.Status == canceltree.StatusWithdrawn:
		a.Term.Good("%s is %s: no worker had begun it, and it is out of the queue", what, r.done)
	case got.Status == "noted":
		a.Term.Good("no %s has begun: noted, and one of this id will be %s when its turn comes", what, r.done)
	case got.Status == "pausing":
		a.Term.Good("%s: it pauses when the step that it is in has ended", what)
	case got.Status != "" && got.Status != r.done:
		a.Term.Good("%s is %s; it is now %s", what, r.done, got.Status)
	default:
		a.Term.Good("%s is %s", what, r.done)
	}
	return nil
}

func commandFailed(a *session.App, err error, entity string) error {
	var e *envelope.Error
	switch {
	case errors.As(err, &e) && e.Code == envelope.CodeKeyUnknown && !e.FromPeer():
		where := fmt.Sprintf("no --keys was given, and there is no %s", a.DefaultKeyDir())
		if dir := a.KeyDir(); dir != "" {
			where = "keys are looked for in " + dir
		}
		return outcome.Hinted(fmt.Errorf("%s: %s (%s): the workers of %s have heard the command, but their answer cannot be verified", e.Code, e.Message, where, entity),
			"Give the keys that the workers are trusted by, with --keys or AEEMESH_KEYS, \"aeemesh keys trust\", or --shared-keys. \"aeemesh runs show RUN\" shows the outcome of the command.")
	case errors.As(err, &e):
		return outcome.Remote(e)
	case errors.Is(err, jetstream.ErrUncertain):
		return outcome.Hinted(err, "Perhaps it is queued, and the first worker of %s that comes applies it: \"aeemesh runs show RUN\" tells once the mesh answers again.", entity)
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
	case errors.Is(err, mesh.ErrQueued):
		return outcome.Hinted(outcome.Stopped(err, "no worker of %s has answered; the command is queued and will be applied by the first that comes", entity),
			"\"aeemesh worker FILE\" starts one; --timeout waits longer.")
	default:
		return outcome.Hinted(outcome.Stopped(err, "no worker of %s has answered; the wait ended before the command was queued", entity),
			"Give it again, with a longer --timeout: without an answer it goes into the queue after two seconds.")
	}
	return session.LaneError(err)
}

// settleFlags describe the outcome of a tool call.
type settleFlags struct {
	done, failed, reason string
	repeat               bool
}

func (f *settleFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.done, "done", "", "it happened, and returned this `JSON`")
	c.Flags().StringVar(&f.failed, "failed", "", "it did not happen, or failed, with this `message` for the model")
	c.Flags().BoolVar(&f.repeat, "repeat", false, "call it again, under the same idempotency key")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the record")
}

func (f *settleFlags) command(cmd *cobra.Command, t intents.Target, args []string) (intents.Command, error) {
	out := intents.SettleTask{Target: t, Reason: f.reason}
	if len(args) > 0 {
		out.Call = args[0]
	}
	given := 0
	for name, set := range map[string]func(){
		"done":   func() { out.Outcome, out.Result = intents.OutcomeDone, json.RawMessage(f.done) },
		"failed": func() { out.Outcome, out.Error = intents.OutcomeFailed, f.failed },
		"repeat": func() { out.Outcome = intents.OutcomeRepeat },
	} {
		if cmd.Flags().Changed(name) {
			set()
			given++
		}
	}
	switch {
	case given != 1:
		return nil, outcome.Usagef(cmd, "state the outcome with one of --done, --failed and --repeat")
	case out.Outcome == intents.OutcomeDone && !json.Valid(out.Result):
		return nil, outcome.Usagef(cmd, "--done %s: it is no JSON", f.done)
	}
	return out, nil
}

func runsForkCommand(a *session.App) *cobra.Command {
	var entity, taskID string
	var at uint64
	c := session.Connects(&cobra.Command{
		Use:   "fork RUN",
		Short: "Begin a new run from a checkpoint of another",
		Long: `Begins a new run, with a task id of its own, that goes on from a checkpoint of
RUN; RUN itself stays as it is. Tool calls that have a receipt there are not
repeated. A call that was decided in that checkpoint, and has no receipt, keeps
its idempotency key; calls that the new run decides on have keys of their own.`,
		Example: `  aeemesh runs fork 0f4c
  aeemesh runs fork 0f4c --at 17`,
		Args:              outcome.Arguments("RUN"),
		ValidArgsFunction: session.Completing(a, CompleteRuns),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return aboutRun(a, ctx, cmd, (*Store).Find, args[0], entity, session.Options{Config: a.LaneClient(cmd)}, func(s *session.Session, runs *Store, rec state.Record) error {
				return forkRun(a, ctx, s, runs, rec, taskID, at)
			})
		}),
	})
	EntityFlag(c, &entity)
	a.AddStateFlags(c.Flags())
	c.Flags().Uint64Var(&at, "at", 0, "from the checkpoint of this `revision` (default the last)")
	c.Flags().StringVar(&taskID, "task", "", "the new task's `id` (default a new one)")
	return c
}

func forkRun(a *session.App, ctx context.Context, s *session.Session, runs *Store, rec state.Record, taskID string, at uint64) (err error) {
	if at != 0 {
		if rec, err = runs.At(ctx, rec.ID, at); err != nil {
			return notKept(err, at)
		}
	}
	if rec.End != nil {
		return outcome.Hinted(outcome.Conflict("run %s has left its reply alone: its task is not kept", ShortRun(rec.ID.Run)),
			"A worker with --keep-tasks keeps the task of every run.")
	}
	parent, err := ownRecord(a, runs, rec)
	if err != nil {
		return err
	}
	receipt, err := s.Node.Fork(ctx, parent, state.ForkOf{TaskID: taskID, Revision: rec.Revision})
	if err != nil {
		return session.LaneError(err)
	}
	if a.Term.JSON {
		return a.Term.Object(receipt)
	}
	a.Term.Line("%s", receipt.TaskID)
	a.Term.Good("run %s goes on from revision %d of %s as task %s", ShortRun(receipt.Run), rec.Revision, ShortRun(rec.ID.Run), receipt.TaskID)
	a.Term.Hint(fmt.Sprintf("\"aeemesh runs follow %s\" shows it.", ShortRun(receipt.Run)))
	return nil
}

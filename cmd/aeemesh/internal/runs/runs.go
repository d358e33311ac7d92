package runs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// Command is "aeemesh runs" with its subcommands.
func Command(a *session.App) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:   "runs",
		Short: "List, inspect and steer the runs of durable tasks",
		Long: `A durable task is one run: a chain of checkpoints, each an AAIF Agent State
document. RUN is a run's id, or the beginning of one, or its task's id.`,
		Example: `  aeemesh runs list --status running,paused
  aeemesh runs show 0f4c
  aeemesh runs pause 0f4c && aeemesh runs steer 0f4c "look at the tests too" && aeemesh runs resume 0f4c
  aeemesh runs settle 0f4c call_1 --done '{"sent":true}'
  aeemesh runs fork 0f4c --at 17`,
	}, append([]*cobra.Command{ListCommand(a), runsShowCommand(a), runsFollowCommand(a), runsDiffCommand(a), runsForkCommand(a)},
		append(runCommands(a), runMoveCommands(a)...)...)...)
}

// Store is the store of runs, with the codec to show them. Runs of agents
// without state keys can be shown, too.
type Store struct {
	state.Store
	Codec  state.Codec
	states *jetstream.States // Store
}

// NewStore returns the store of m's mesh, with the keys to show what is sealed; nil: none.
func NewStore(js natsjs.JetStream, m subject.Map, ring *state.Keyring) *Store {
	states := jetstream.NewStates(js, m)
	return &Store{states, state.Codec{Seal: ring, AcceptClear: true}, states}
}

// Open opens the store of the mesh's runs for a command.
func Open(a *session.App, cmd *cobra.Command, s *session.Session) (*Store, error) {
	js, m, err := a.Streams(s.Conn)
	if err != nil {
		return nil, err
	}
	ring, err := a.Keyring(cmd)
	if err != nil {
		return nil, err
	}
	return NewStore(js, m, ring), nil
}

// Documents yields the runs whose document was stored at a time or later, except those whose
// headers name another corr.
func (r *Store) Documents(ctx context.Context, since time.Time, corr string) iter.Seq2[state.Record, error] {
	return r.states.Documents(ctx, since, corr)
}

// TaskOf returns the task and the agent of the run with a name; the run may have no record. If the
// name does not have the form of a run's id, or is the id of no run, TaskOf returns it as the task's
// id. It fails with state.ErrNotFound if the name is the whole id of a run that the agent does not
// have, and none of its tasks that wait or have a reply would have.
func (r *Store) TaskOf(ctx context.Context, s *session.Session, name, entity string) (task, agent string, err error) {
	if !LikeRun(name) {
		return name, entity, nil
	}
	look, whole := r.Look, entity != "" && len(name) >= wholeRun
	if whole { // a list of its runs would have no other, except an adopted one
		look = r.exact
	}
	_, h, err := look(ctx, name, entity)
	if errors.Is(err, state.ErrNotFound) && ofRun(name) {
		w, none := waiting(ctx, s, name, entity)
		if none == nil {
			return w.ID, w.Entity, nil
		}
		whole = whole && errors.Is(none, state.ErrNotFound)
		if whole {
			_, h, err = r.Find(ctx, name, entity)
		}
		if errors.Is(err, state.ErrNotFound) {
			if task, agent, ok := answered(ctx, s, name, entity); ok {
				return task, agent, nil
			}
			if whole {
				return "", "", err
			}
		}
	}
	if errors.Is(err, state.ErrNotFound) || errors.Is(err, jetstream.ErrDenied) { // a user who may read results may lack the permission to read runs
		return name, entity, nil
	}
	return h.TaskID, h.Entity, err
}

// LikeRun reports whether a name has the form of a run's id, or of its beginning as lists print it.
func LikeRun(name string) bool {
	return len(name) >= shortRun && len(name) <= wholeRun && strings.Trim(strings.ToLower(name), "0123456789abcdef-") == ""
}

// Look is like [Store.Find], for commands that change nothing. If name is the beginning of an id,
// at least as long as lists print it, and exactly one recently written run matches, Look returns
// that run. The chance that an older run matches the same 32 bits is about one in a million.
// Commands that change a run compare with all names.
func (r *Store) Look(ctx context.Context, name, entity string) (state.Record, state.Header, error) {
	if found, err := r.recent(ctx, name, entity); err == nil && len(found) == 1 {
		rec, err := r.Get(ctx, found[0])
		if err == nil {
			h, err := rec.Header()
			return rec, h, err
		}
	}
	return r.Find(ctx, name, entity)
}

// Known returns the runs that match a name, as far as they can be found without the names of all
// runs.
func (r *Store) Known(ctx context.Context, name string) ([]state.ID, error) {
	found, err := r.states.Locate(ctx, name)
	if err != nil || len(found) > 0 {
		return found, err
	}
	return r.recent(ctx, name, "")
}

// Entities returns the entities that have a run of a task.
func (r *Store) Entities(ctx context.Context, task string) (entities []string, err error) {
	found, err := r.states.Locate(ctx, task)
	for _, id := range found {
		if id.Run == state.RunID(id.Entity, task) {
			entities = append(entities, id.Entity)
		}
	}
	return entities, err
}

// recent returns the runs that were written lately and whose id begins with a name of at least as
// many characters as lists print. Whole ids are found in another way.
func (r *Store) recent(ctx context.Context, name, entity string) ([]state.ID, error) {
	if name = strings.ToLower(name); len(name) >= wholeRun || !LikeRun(name) {
		return nil, nil
	}
	return r.states.Recent(ctx, entity, func(id state.ID) bool { return strings.HasPrefix(id.Run, name) })
}

// Find returns the one run that a person means by a name.
func (r *Store) Find(ctx context.Context, name, entity string) (state.Record, state.Header, error) {
	var none state.Header
	if entity != "" {
		if rec, h, err := r.exact(ctx, name, entity); !errors.Is(err, state.ErrNotFound) {
			return rec, h, err
		}
	}
	found, err := r.named(ctx, name, entity)
	if err != nil {
		return state.Record{}, none, err
	}
	switch len(found) {
	case 0:
		return state.Record{}, none, outcome.Hinted(noRun{name}, "\"aeemesh runs list\" shows those that have begun, \"aeemesh queues\" what waits; --entity names the agent of a task that waits.")
	case 1:
		rec, err := r.Get(ctx, found[0])
		if err != nil {
			return state.Record{}, none, err
		}
		h, err := rec.Header()
		return rec, h, err
	}
	var names []string
	for _, id := range found {
		names = append(names, id.Run)
	}
	return state.Record{}, none, severalRuns(name, names)
}

// exact returns the run of an entity whose id, or whose task's id, is name. It does not search: the
// id of a task determines its run. The id of a run may be in upper case.
func (r *Store) exact(ctx context.Context, name, entity string) (state.Record, state.Header, error) {
	for i, run := range []string{name, strings.ToLower(name), state.RunID(entity, name)} {
		if len(run) > state.MaxRun || i == 1 && run == name { // it is the id of a task; it was tried
			continue
		}
		rec, err := r.Get(ctx, state.ID{Entity: entity, Run: run})
		if err == nil {
			h, err := rec.Header()
			return rec, h, err
		}
		if !errors.Is(err, state.ErrNotFound) {
			return state.Record{}, state.Header{}, err
		}
	}
	return state.Record{}, state.Header{}, noRun{name}
}

// severalRuns is the error of a name that means more than one run.
func severalRuns(name string, runs []string) error {
	slices.Sort(runs)
	return outcome.Hinted(fmt.Errorf("%s stands for %d runs: name one by more of its id", term.Printable(name), len(runs)), "They are: %s.", strings.Join(runs[:min(8, len(runs))], ", "))
}

// ClockSlack is how much the clock of a sender that made an id may be ahead of the
// server's.
const ClockSlack = 10 * time.Minute

// Since returns the time before which nothing is stored of an id, a corr or a task's; ok is false
// if the id does not say when it was made, or a time that has not come: then its maker's clock is
// wrong, or it means to hide what it does.
func Since(id string) (at time.Time, ok bool) {
	at, ok = envelope.IDTime(id)
	if at = at.Add(-ClockSlack); !ok || time.Until(at) > 0 {
		return time.Time{}, false
	}
	return at, true
}

// named returns the runs whose id begins with a name, or whose task has it as its id. The
// names of all runs are read only for the beginning of an id, and for an id that says no
// time and is of no agent with a durable lane.
func (r *Store) named(ctx context.Context, name, entity string) ([]state.ID, error) {
	var ids []state.ID
	few := false
	if entity == "" {
		found, err := r.states.Locate(ctx, name)
		if err != nil || len(found) > 0 {
			return found, err
		}
		if made, ok := Since(name); ok { // a task's id, whose run is not older
			if ids, few, err = r.states.Since(ctx, made); err != nil {
				few = false
			}
		}
	}
	var err error
	if !few {
		ids, err = r.states.Names(ctx, entity)
	}
	return slices.DeleteFunc(ids, func(id state.ID) bool {
		return !strings.HasPrefix(id.Run, strings.ToLower(name)) && id.Run != state.RunID(id.Entity, name) && (len(name) != wholeRun || name != state.AdoptedTask(id.Entity, id.Run))
	}), err
}

// noRun is the error of a run that does not exist.
type noRun struct{ name string }

func (e noRun) Error() string        { return "there is no run " + term.Printable(e.name) }
func (e noRun) Is(target error) bool { return target == state.ErrNotFound }

// decode decodes a checkpoint. The error of a sealed one says which key is
// missing.
func (r *Store) decode(rec state.Record) (*state.Checkpoint, error) {
	c, err := r.Codec.DecodeRecord(rec)
	if errors.Is(err, state.ErrSealed) {
		return nil, outcome.Hinted(err, "Give the key with --state-key env:NAME or file:PATH.")
	}
	return c, err
}

// ownRecord decodes a checkpoint for resuming its run, as a worker does.
func ownRecord(a *session.App, runs *Store, rec state.Record) (*state.Checkpoint, error) {
	codec := runs.Codec
	codec.AcceptClear = a.AcceptClear
	c, err := codec.Read(rec)
	switch {
	case errors.Is(err, state.ErrSealed):
		return nil, outcome.Hinted(err, "Give the key with --state-key env:NAME or file:PATH.")
	case errors.Is(err, state.ErrClear):
		return nil, outcome.Hinted(err, "Leave --state-key out if the agent's workers have none; --accept-clear-state believes what was stored before they had one.")
	}
	return c, err
}

// shortRun is how many characters of a run's id lists print, wholeRun how many it has.
const shortRun, wholeRun = 8, 36

// ShortRun shortens a run's id so that it is still likely to be unique.
func ShortRun(run string) string {
	if len(run) > shortRun {
		return run[:shortRun]
	}
	return run
}

// EntityFlag adds --entity to a command about runs.
func EntityFlag(c *cobra.Command, to *string) {
	c.Flags().StringVarP(to, "entity", "e", "", "of this `agent` only; faster where there are many runs")
}

// CheckEntity refuses an invalid entity of --entity; "" is none.
func CheckEntity(cmd *cobra.Command, entity string) error {
	if entity == "" {
		return nil
	}
	if err := subject.ValidateEntity(entity); err != nil {
		return outcome.Usagef(cmd, "--entity: %w", err)
	}
	return nil
}

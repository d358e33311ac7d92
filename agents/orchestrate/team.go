package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Mind is the model of the agent whose team it is.
//
// Implementers must be safe for concurrent use by the calls of one task, count
// what they use in the task's run, and return at once what ends the run here,
// such as [mesh.ErrLost], as it is.
type Mind interface {
	// Work does a task's work with another payload in the place of its own, with
	// the agent's own tools, and returns a payload that may be the task's result.
	// Its steps are committed, so it goes on where it was. There is one such work
	// in a run.
	Work(ctx context.Context, payload json.RawMessage) (json.RawMessage, error)
	// Ask asks one question beside the work. Its answer is a JSON object that fits
	// the question's schema; nothing of it is committed.
	Ask(ctx context.Context, q Question) (json.RawMessage, error)
	// Save writes what was used for questions into a checkpoint.
	Save(cp *state.Checkpoint)
}

// ErrAnswer is behind the error of a [Mind] whose model answered, and not as it
// was asked to.
var ErrAnswer = errors.New("the model's answer to a question of its team cannot be used")

// Question is one that a [Mind] answers in one turn.
type Question struct {
	Asked  string          // what is asked
	Input  json.RawMessage // about what
	Schema json.RawMessage // of the answer, a JSON Schema of an object
	Bare   string          // the member that an answer stands for which is a text and no object; "": none
}

// Options are what a team has besides its plan.
type Options struct {
	// Directory finds the members. Default: [Entities].
	Directory Directory
	// Retries and Backoff hold for members of whose definition nothing is known.
	Retries mesh.RetryPolicy
	// Handoffs are asked after each step of a pipeline, and about what a router or a
	// swarm has come to. A model that leads the team asks them itself.
	Handoffs *Handoffs
	// MaxOutputs bounds, in bytes, what the outputs of all members of a swarm take
	// together: they are in memory, and in the run's checkpoint. A member beyond it
	// has failed (E_TOO_LARGE). Default 64 MiB.
	MaxOutputs int64
	// MemberTime is how long a member of a swarm has where the document gives it no
	// time and the task has more than a day: whoever is never heard of must not hang
	// a swarm. It does not count while a member waits for a person. Default 10
	// minutes.
	MemberTime time.Duration
	// Logger gets what the operator should know of each task. Default discards.
	Logger *slog.Logger
}

// DefaultRetries is how often a member's failure that may pass is tried again,
// where neither its definition nor the document's extension says.
const DefaultRetries = 2

// Team does tasks with the members of a plan. It may be used by any number of
// goroutines.
type Team struct {
	plan *Plan
	dir  Directory
	opts Options
	log  *slog.Logger
}

// New makes a team of a plan. It does no I/O.
func New(plan *Plan, opts Options) *Team {
	t := &Team{plan: plan, dir: opts.Directory, opts: opts, log: opts.Logger}
	if t.dir == nil {
		t.dir = Entities{}
	}
	if t.opts.MaxOutputs <= 0 {
		t.opts.MaxOutputs = 64 << 20
	}
	if t.opts.MemberTime <= 0 {
		t.opts.MemberTime = 10 * time.Minute
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	return t
}

// Plan is what the team was made of.
func (t *Team) Plan() *Plan { return t.plan }

// Result is what a team makes of a task.
type Result struct {
	Payload json.RawMessage
	Usage   Usage // of the members, as far as they say
	// Swarm is a swarm's account of itself, for the reserved member of that name;
	// nil for other patterns.
	Swarm json.RawMessage
	// Tasks are the ids of the tasks of members that gave a result.
	Tasks []string
}

// Handle does a task with the team, from where its run stands. mind may be nil.
// Errors that end the run here are returned as they are.
func (t *Team) Handle(ctx context.Context, task *mesh.Task, mind Mind) (Result, error) {
	if most := t.plan.Extras.Tree.MaxIterations; most > 0 {
		task.BoundTurns(most)
	}
	w := &work{Team: t, task: task, mind: mind, run: task.Run(), began: time.Now()}
	if err := w.begin(); err != nil {
		return Result{}, err
	}
	payload, err := w.do(ctx)
	if err != nil {
		return Result{}, w.park(ctx, err)
	}
	return Result{payload, w.used(), w.account, w.answered()}, nil
}

// work is the team's work on one task.
type work struct {
	*Team
	task  *mesh.Task
	mind  Mind
	run   *mesh.Run // nil on the live lane
	began time.Time

	mu       sync.Mutex // over pos and fresh
	pos      position
	fresh    int // changes of pos since the last commit began
	account  json.RawMessage
	commitMu sync.Mutex // one commit at a time

	handedMu sync.Mutex
	handed   *state.Checkpoint // what came along with the task; nil: nobody has looked
}

func (w *work) do(ctx context.Context) (json.RawMessage, error) {
	switch w.plan.Pattern {
	case Pipeline:
		return w.pipeline(ctx)
	case Router:
		return w.orHandOff(ctx, w.router)
	case Swarm:
		return w.orHandOff(ctx, func(ctx context.Context) (json.RawMessage, error) { return w.swarm(ctx, w.task.Input()) })
	case ModelLed:
		return w.mind.Work(With(ctx, w), w.task.Input())
	}
	return nil, errors.New("orchestrate: there is no pattern " + string(w.plan.Pattern))
}

// orHandOff does a team's work, and hands the task on if a rule holds for what
// came of it.
func (w *work) orHandOff(ctx context.Context, do func(context.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	output, err := do(ctx)
	if err != nil {
		return nil, err
	}
	if payload, over, err := w.handOff(ctx, output); over {
		return payload, err
	}
	return output, nil
}

// handOff asks the rules after a step, and reports whether one held: then what it
// returns is the team's last word.
func (w *work) handOff(ctx context.Context, output json.RawMessage) (json.RawMessage, bool, error) {
	if w.opts.Handoffs == nil {
		return nil, false, nil
	}
	return w.opts.Handoffs.After(ctx, w.task, Moment{Facts: w.facts(w.task.Input(), output)})
}

// left is how much of the task's time is left.
func (w *work) left() time.Duration { return time.Until(w.task.Deadline) }

// used is what all members used together.
func (w *work) used() Usage {
	w.mu.Lock()
	defer w.mu.Unlock()
	var u Usage
	for i := range w.pos.Outcomes {
		u = u.Add(w.pos.Outcomes[i].Usage)
	}
	return u
}

// answered are the tasks of members that gave a result.
func (w *work) answered() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.pos.Outcomes {
		if o := &w.pos.Outcomes[i]; o.OK() && o.TaskID != "" {
			ids = append(ids, o.TaskID)
		}
	}
	return ids
}

// fatal reports whether an error ends the run here, whatever the member did.
func fatal(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, mesh.ErrLost), errors.Is(err, mesh.ErrParked), errors.Is(err, mesh.ErrWaits), mesh.IsHandedOff(err):
		return err
	}
	return nil
}

// failed is the error of a task one of whose steps has failed: the member's,
// with the step's name.
func failed(o *Outcome) *envelope.Error {
	e := *o.Err
	e.Message = "step " + o.Alias + ": " + e.Message
	return e.WithCause(o.Err)
}

// stepTeam names a step of a team in the run's history.
func stepTeam(name, detail string, ms float64) state.Step {
	return state.Step{Kind: state.StepTeam, Name: name, Detail: detail, MS: int64(ms)}
}

package orchestrate

import (
	"cmp"
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

// AgentModel is the model of the agent that a team belongs to.
//
// Implementers must be safe for concurrent use by the calls of one task, add their usage to the
// task's run, and return errors that end the run on this worker, such as [mesh.ErrLost], at once
// and unchanged.
type AgentModel interface {
	// Work does the task with the given payload and the agent's own tools, and returns a payload
	// that may be the task's result. Its steps are committed, so it continues after a crash. A run
	// has at most one such work.
	Work(ctx context.Context, payload json.RawMessage) (json.RawMessage, error)
	// Relayed reports whether the work's result is the answer of an agent that the task was delegated
	// to by a handoff rule, and that had to be called. No rule is evaluated after that.
	Relayed() bool
	// Ask asks the model one question in addition to the work. The answer is a JSON object that
	// fits the question's schema; nothing is committed.
	Ask(ctx context.Context, q Question) (json.RawMessage, error)
	// Used returns the model's usage for the task so far. It is not called while
	// a question is answered.
	Used() Usage
	// Save writes the usage of questions into a checkpoint.
	Save(cp *state.Checkpoint)
}

// ErrAnswer is wrapped by the error of a [AgentModel] whose model answered a
// question, but not in the requested form.
var ErrAnswer = errors.New("the model's answer to a question of its team cannot be used")

// Question is a question that a [AgentModel] answers in one turn.
type Question struct {
	Asked  string          // the question
	Input  json.RawMessage // what the question is about
	Schema json.RawMessage // a JSON Schema of the answer, which must be an object
	Bare   string          // the member into which an answer that is plain text is put; "": none
}

// Options are a team's settings beyond its plan.
type Options struct {
	// Directory finds the members. Default: [Entities].
	Directory Directory
	// Retries and Backoff apply to members whose definition is not known.
	Retries mesh.RetryPolicy
	// Handoffs are evaluated after each step of a pipeline, and after the
	// output of a router or a swarm. A model that leads the team evaluates them
	// itself.
	Handoffs *Handoffs
	// MaxOutputs bounds, in bytes, the outputs of all members of a swarm
	// together: they are held in memory and in the run's checkpoint. A member
	// that exceeds it has failed (E_TOO_LARGE). Errors count, too; one that exceeds
	// a sixteenth of what is left loses its details. Default 64 MiB.
	MaxOutputs int64
	// MemberTime is the timeout of each try of a member of a swarm if the
	// document sets none and the task has more than a day: a member that never
	// answers must not block the swarm. Time in which a member waits for a
	// person does not count. Default 10 minutes.
	MemberTime time.Duration
	// Shape, if set, may convert one member's output for the next member, for example to a payload
	// of the next member's schema template (SDSI). If ok is false, the output is passed on
	// unchanged, as it always is to a member for which the document names an intent. It is not
	// called for the tasks of judges and synthesizers.
	Shape func(ctx context.Context, entity string, made json.RawMessage) (intent string, shaped json.RawMessage, ok bool)
	// Logger receives records about each task. Default: discarded.
	Logger *slog.Logger
}

// DefaultRetries is how often a transient failure of a member is retried,
// unless its definition or the document's extension says otherwise.
const DefaultRetries = 2

// Team runs tasks with the members of a plan. It is safe for concurrent use.
type Team struct {
	plan *Plan
	dir  Directory
	opts Options
	log  *slog.Logger
}

// New makes a team from a plan. It does no I/O.
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
	t.log = cmp.Or(t.log, slog.New(slog.DiscardHandler))
	return t
}

// Plan returns the team's plan.
func (t *Team) Plan() *Plan { return t.plan }

// Result is a team's result of a task.
type Result struct {
	Payload json.RawMessage
	Usage   Usage // of the members, as they report it
	// Swarm is a swarm's [Record], for the reserved member of that name; nil
	// for other patterns.
	Swarm json.RawMessage
	// Tasks are the ids of the members' tasks that gave a result.
	Tasks []string
}

// Handle runs a task with the team, from its last checkpoint. agentModel may be nil. Errors that
// end the run on this worker are returned unchanged.
func (t *Team) Handle(ctx context.Context, task *mesh.Task, agentModel AgentModel) (Result, error) {
	if most := t.plan.Extras.Tree.MaxIterations; most > 0 {
		task.BoundTurns(most)
	}
	w := &work{Team: t, task: task, agentModel: agentModel, run: task.Run()}
	if err := w.begin(); err != nil {
		return Result{}, err
	}
	payload, err := w.do(w.within(ctx))
	if err != nil {
		return Result{}, w.park(ctx, err)
	}
	return Result{payload, w.used(), w.account, w.answered()}, nil
}

// work is the team's work on one task.
type work struct {
	*Team
	task       *mesh.Task
	agentModel AgentModel
	run        *mesh.Run // nil on the live lane

	mu       sync.Mutex // guards what follows, up to account
	pos      position
	fresh    int // number of changes of pos since the last commit began
	stages   int // stages counts how often pos was staged; staged is the last count that the run has
	staged   int
	account  json.RawMessage
	commitMu sync.Mutex // serialises commits

	handedMu sync.Mutex
	handed   *state.Checkpoint // the state that came with the task; nil: not read yet
}

func (w *work) do(ctx context.Context) (json.RawMessage, error) {
	switch w.plan.Pattern {
	case Pipeline:
		return w.pipeline(ctx)
	case Router:
		return w.orDelegate(ctx, w.router)
	case Swarm:
		return w.orDelegate(ctx, func(ctx context.Context) (json.RawMessage, error) { return w.swarm(ctx, w.task.Input()) })
	case ModelLed:
		return w.agentModel.Work(ctx, w.task.Input())
	}
	return nil, errors.New("orchestrate: there is no pattern " + string(w.plan.Pattern))
}

// orDelegate does a team's work, and delegates the task if a handoff rule holds
// for the output.
func (w *work) orDelegate(ctx context.Context, do func(context.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	output, err := do(ctx)
	if err != nil {
		return nil, err
	}
	if w.agentModel != nil && w.agentModel.Relayed() {
		return output, nil
	}
	if payload, over, err := w.handOff(ctx, output); over {
		return payload, err
	}
	return output, nil
}

// handOff evaluates the rules after a step, and reports whether one held: then
// the team must return what it returns.
func (w *work) handOff(ctx context.Context, output json.RawMessage) (json.RawMessage, bool, error) {
	if w.opts.Handoffs == nil {
		return nil, false, nil
	}
	return w.opts.Handoffs.After(ctx, w.task, Moment{Facts: w.facts(w.task.Input(), output)})
}

// left returns the task's remaining time.
func (w *work) left() time.Duration { return time.Until(w.task.Deadline) }

// used returns the usage of all members.
func (w *work) used() Usage {
	w.mu.Lock()
	defer w.mu.Unlock()
	var u Usage
	for i := range w.pos.Outcomes {
		u = u.Add(w.pos.Outcomes[i].Usage)
	}
	return u
}

// spent returns the usage of all members and of the agent's own model.
func (w *work) spent() Usage {
	u := w.used()
	if w.agentModel != nil {
		u = u.Add(w.agentModel.Used())
	}
	return u
}

// answered returns the ids of the members' tasks that gave a result.
func (w *work) answered() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.pos.Outcomes {
		if o := &w.pos.Outcomes[i]; o.Answered() {
			ids = append(ids, o.TaskID)
		}
	}
	return ids
}

// fatal returns err if it ends the run on this worker, whatever the member did; otherwise nil. A person
// who was asked while a fan-out ended has the task: the fan-out withdraws it, or waits for the answer.
func fatal(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(err, mesh.ErrAnswerPending) && (cause == errEnough || cause == errTooFew || cause == errLate):
		return err
	case ctx.Err() != nil:
		return cause
	case errors.Is(err, mesh.ErrLost), errors.Is(err, mesh.ErrParked), errors.Is(err, mesh.ErrAnswerPending), mesh.IsDelegated(err):
		return err
	}
	return nil
}

// failed returns the error of a task with a failed step: the member's error, with the step's name.
// A code that says "not begun" is about the member's task; the team's has begun. The mesh converts
// it only if it can tell that it came from a peer, which an outcome in a checkpoint does not say.
func failed(o *Outcome) *envelope.Error {
	e := *o.Err
	switch e.Code {
	case envelope.CodeBusy, envelope.CodeRateLimited, envelope.CodeDraining, envelope.CodeNoResponders:
		e = *envelope.Errorf(envelope.CodeUnavailable, "%s", e.Message)
		e.BackoffMS = o.Err.BackoffMS
	}
	e.Message = "step " + o.Alias + ": " + e.Message
	return e.WithCause(o.Err)
}

// stepTeam describes a step of a team for the run's history.
func stepTeam(name, detail string, ms float64) state.Step {
	return state.Step{Kind: state.StepTeam, Name: name, Detail: detail, MS: int64(ms)}
}

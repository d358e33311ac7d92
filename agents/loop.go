package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// DefaultMaxIterations is how many turns a model has for a task, unless the
// document's orchestration.max_iterations says otherwise.
const DefaultMaxIterations = 10

// loop is the [mesh.Handler] that a model drives. It holds what all tasks
// share and never changes.
type loop struct {
	model    model.Model
	base     model.Request // the name, parameters and tools of every turn
	system   string
	format   aaif.ResponseFormat
	contract *contract
	tools    *toolset
	maxTurns int
	stream   bool
	echoes   bool // the model is the offline echo
	log      *slog.Logger
}

func newLoop(def *aaif.Definition, c *contract, opts Options) (*loop, []aaif.Problem, error) {
	m, notices, err := resolveModel(def, opts)
	tools, toolErr := newToolset(def, opts)
	if err := errors.Join(err, toolErr); err != nil {
		return nil, notices, err
	}
	l := &loop{
		model: m, system: systemPrompt(&def.Agent), contract: c, tools: tools,
		maxTurns: DefaultMaxIterations, stream: streams(&def.Agent), log: opts.Logger,
	}
	l.base.Tools = tools.defs
	if o := def.Agent.Orchestration; o != nil && o.MaxIterations.IsSet() {
		l.maxTurns = int(min(max(1, o.MaxIterations.Int64()), math.MaxInt32))
	}
	if m := def.Agent.Model; m != nil {
		l.base.Model, l.format = m.Preferred, m.ResponseFormat
		l.base.Params = params(m)
		l.echoes = m.Provider == aaif.ProviderCustom && m.ProviderID == builtin.ProviderID && m.Preferred == builtin.Echo
	}
	return l, notices, nil
}

// streams says whether the agent streams to those who ask for it: unless the
// document says no, in io.streaming or runtime.streaming.
func streams(a *aaif.Agent) bool {
	no := func(b *bool) bool { return b != nil && !*b }
	return !(a.IO != nil && no(a.IO.Streaming) || a.Runtime != nil && no(a.Runtime.Streaming))
}

// params are the document's sampling parameters in the port's words.
func params(m *aaif.Model) model.Params {
	float := func(n aaif.Number) *float64 {
		if !n.IsSet() {
			return nil
		}
		f := n.Float64()
		return &f
	}
	out := model.Params{Temperature: float(m.Temperature)}
	p := m.Params
	if p == nil {
		return out
	}
	out.TopP, out.FrequencyPenalty, out.PresencePenalty = float(p.TopP), float(p.FrequencyPenalty), float(p.PresencePenalty)
	out.MaxTokens = int(min(p.MaxTokens.Int64(), math.MaxInt32))
	out.Stop, out.Extended = p.Stop, p.Extended
	if p.Seed.IsSet() {
		seed := p.Seed.Int64()
		out.Seed = &seed
	}
	return out
}

// phase is what a run does next.
type phase string

const (
	phaseModel   phase = "model"   // ask the model for a turn
	phaseTools   phase = "tools"   // call the tools that it asked for
	phaseAnswer  phase = "answer"  // make its last turn the result's payload
	phaseAccount phase = "account" // have it account for the answer
	phaseDone    phase = "done"    // Payload is the result
)

// run is how far the work on one task has come. It is all that the next step
// goes by, and plain data: nothing in it is lost when it is written down
// between two steps.
type run struct {
	Phase     phase           `json:"phase"`
	Messages  []model.Message `json:"messages"`
	Turns     int             `json:"turns"` // of the model
	Usage     model.Usage     `json:"usage"`
	Cut       bool            `json:"cut,omitempty"` // the last turn was cut at its token limit
	ToolsUsed []string        `json:"tools_used,omitempty"`
	Repaired  bool            `json:"repaired,omitempty"` // the one repair turn has been asked for
	Payload   json.RawMessage `json:"payload,omitempty"`
}

// Handle runs a task to its result, step by step.
func (l *loop) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	r, err := l.begin(task)
	if err != nil {
		return nil, err
	}
	for r.Phase != phaseDone {
		if err := l.step(ctx, task, r); err != nil {
			return nil, err
		}
	}
	return r.Payload, nil
}

// begin is the run of a task of which nothing is done yet.
func (l *loop) begin(task *mesh.Task) (*run, error) {
	schema := l.contract.schema(task.Envelope.Intent)
	if wantsEvidence(task) && closedToEvidence(schema) {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.decision_evidence: the schema of this agent's results leaves no room for it")
	}
	system := l.system
	switch {
	case l.wantsJSON(task):
		var text json.RawMessage
		if schema != nil {
			text = schema.JSON()
		}
		system += jsonPrompt(text)
	case l.format == aaif.ResponseMarkdown:
		system += markdownPrompt
	}
	return &run{
		Phase:    phaseModel,
		Messages: []model.Message{model.System(system), model.User(userMessage(task.Envelope.Payload))},
	}, nil
}

// step takes one step. Between two steps nothing is under way.
func (l *loop) step(ctx context.Context, task *mesh.Task, r *run) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch r.Phase {
	case phaseModel:
		return l.modelTurn(ctx, task, r)
	case phaseTools:
		return l.toolCalls(ctx, task, r)
	case phaseAnswer:
		return l.answer(task, r)
	case phaseAccount:
		return l.account(ctx, task, r)
	}
	return fmt.Errorf("agent run: there is no phase %q", r.Phase)
}

// modelTurn asks the model for its next turn.
func (l *loop) modelTurn(ctx context.Context, task *mesh.Task, r *run) error {
	if r.Turns >= l.maxTurns {
		return l.exhausted()
	}
	req := l.base
	req.Messages = r.Messages
	req.Format = l.requestFormat(task)
	res, err := l.model.Generate(ctx, &req, l.onDelta(task))
	if err != nil {
		return l.modelFailure(ctx, task, r, err)
	}
	r.Turns++
	r.Usage = r.Usage.Add(res.Usage)
	r.Messages = append(r.Messages, res.Message)
	r.Cut = res.Finish == model.FinishLength
	switch {
	case res.Finish == model.FinishContentFilter:
		return envelope.Errorf(envelope.CodeModel, "the model's provider withheld the answer")
	case len(res.Message.ToolCalls) == 0:
		r.Phase = phaseAnswer
	case r.Turns >= l.maxTurns: // nobody would read what the tools say
		return l.exhausted()
	default:
		r.Phase = phaseTools
	}
	return nil
}

// exhausted ends a run that is still not done (AAIF, Orchestration Topology:
// max_iterations is a loop guard that the runtime MUST enforce).
func (l *loop) exhausted() error {
	return envelope.Errorf(envelope.CodeMaxIterations, "not done after %d turns of the model", l.maxTurns)
}

// modelFailure says to the sender what kind of failure it was, and to the log
// what the provider said.
func (l *loop) modelFailure(ctx context.Context, task *mesh.Task, r *run, err error) error {
	var failed *model.Error
	if ctx.Err() != nil || !errors.As(err, &failed) {
		return err
	}
	e := task.Envelope
	l.log.Warn("model turn failed", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "from", e.From, "turn", r.Turns+1, "err", err)
	wait := failed.RetryAfter
	if wait <= 0 {
		wait = modelBackoff
	}
	switch failed.Kind {
	case model.ErrRateLimited:
		// E_RATE_LIMITED promises that nothing was done.
		if len(r.ToolsUsed) == 0 {
			return envelope.Errorf(envelope.CodeRateLimited, "the model's provider is over its rate limit: %w", err).WithBackoff(wait)
		}
		return envelope.Errorf(envelope.CodeUnavailable, "the model's provider is over its rate limit; tools have been called already: %w", err).WithBackoff(wait)
	case model.ErrUnavailable:
		return envelope.Errorf(envelope.CodeUnavailable, "the model's provider cannot be reached, or failed: %w", err).WithBackoff(wait)
	case model.ErrAuth:
		return envelope.Errorf(envelope.CodeModel, "the model's provider does not accept the agent's credentials: %w", err)
	case model.ErrContextTooLong:
		return envelope.Errorf(envelope.CodeModel, "the task does not fit the model's context window: %w", err)
	}
	return envelope.Errorf(envelope.CodeModel, "the model's provider refused the request: %w", err)
}

// modelBackoff is what senders are advised to wait where the provider gives no
// advice.
const modelBackoff = 2 * time.Second

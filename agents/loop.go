package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// DefaultMaxIterations is how many turns a model may take for a task, unless
// the document's orchestration.max_iterations says otherwise.
const DefaultMaxIterations = 10

// loop is the [mesh.Handler] of an agent whose work a model does. It holds what
// all tasks share and is never modified.
type loop struct {
	model    model.Model
	base     model.Request // the name and parameters of every turn
	system   string
	format   aaif.ResponseFormat
	contract *contract
	tools    *toolset
	maxTurns int
	stream   bool
	context  int // the model's context window in tokens; 0: not known
	memory   Memory
	handoffs *orchestrate.Handoffs
	books    *treasury
	echoes   bool // the model is the offline echo
	secrets  *secret.Redactor
	log      *slog.Logger
	retries  mesh.RetryPolicy // of a model's turn, on the live lane
	header   string           // the header that carries a trace to tools
	fetch    fetcher          // fetches the envelopes that tasks refer to
	dropped  *sync.Map        // parameters that a provider does not take and of which the log has told
}

func newLoop(entity string, def *aaif.Definition, c *contract, opts Options) (*loop, []aaif.Problem, error) {
	m, notices, err := resolveModel(def, opts)
	if err == nil {
		var more []aaif.Problem
		more, err = wideEnough(def, opts)
		notices = append(notices, more...)
	}
	tools, more, toolErr := newToolset(entity, def, opts)
	notices = append(notices, more...)
	if err := errors.Join(err, toolErr); err != nil {
		return nil, notices, errors.Join(err, tools.close())
	}
	l := &loop{
		model: m, system: systemPrompt(&def.Agent), contract: c, tools: tools, maxTurns: DefaultMaxIterations, stream: streams(&def.Agent),
		context: opts.ContextTokens, memory: opts.Memory, books: newTreasury(opts), secrets: opts.Redactor, log: opts.Logger, dropped: &sync.Map{},
		retries: liveRetries(def), header: traceHeader(def), handoffs: newHandoffs(def, opts), fetch: fetchByTask,
	}
	if o := def.Agent.Orchestration; o != nil && o.MaxIterations.IsSet() {
		l.maxTurns = int(min(max(1, o.MaxIterations.Int64()), math.MaxInt32))
	}
	l.format = answerFormat(&def.Agent)
	if m := def.Agent.Model; m != nil {
		l.base.Model = m.Preferred
		l.base.Params = params(m)
		l.echoes = m.Provider == aaif.ProviderCustom && m.ProviderID == builtin.ProviderID && m.Preferred == builtin.Echo
	}
	return l, notices, nil
}

// wideEnough refuses a context window that is smaller than the document's min_context_tokens, if
// the operator has set the window's size (AAIF, LLM Provider Routing, step 4). Options.Models
// refuses routes whose windows it knows; the offline model and Options.Model are not such routes.
// That of Options.Model is not known if it is not set, so the field is not honoured then.
func wideEnough(def *aaif.Definition, opts Options) ([]aaif.Problem, error) {
	m := def.Agent.Model
	switch {
	case m == nil || m.MinContextTokens.Int64() <= int64(opts.ContextTokens):
		return nil, nil
	case opts.ContextTokens > 0:
		return nil, fmt.Errorf("/agent/model: its context window has %d tokens, and min_context_tokens is %d", opts.ContextTokens, m.MinContextTokens.Int64())
	case opts.Model == nil:
		return nil, nil
	}
	return []aaif.Problem{aaif.Unhonoured("/agent/model/min_context_tokens", aaif.RuleNotHonoured, aaif.SeverityWarning, "the context window of the operator's own model is not known here (Options.ContextTokens)")}, nil
}

// streams reports whether the agent streams to senders that ask for it: yes,
// unless the document sets io.streaming or runtime.streaming to false.
func streams(a *aaif.Agent) bool {
	no := func(b *bool) bool { return b != nil && !*b }
	return !(a.IO != nil && no(a.IO.Streaming) || a.Runtime != nil && no(a.Runtime.Streaming))
}

// params converts the document's sampling parameters to those of package model.
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

// Handle runs a task to its result, step by step, from its last checkpoint.
func (l *loop) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	var j journal = live{}
	var cp *state.Checkpoint
	if r := task.Run(); r != nil {
		j, cp = r, r.View()
	}
	payload, err := l.work(ctx, task, &run{journal: j, input: task.Input()}, cp)
	return payload, l.secrets.Error(err)
}

// work continues a run from its last checkpoint; cp is nil for a run that has
// none.
func (l *loop) work(ctx context.Context, task *mesh.Task, r *run, cp *state.Checkpoint) (json.RawMessage, error) {
	ctx = handedTrace(ctx, task.Envelope)
	if err := l.begin(ctx, task, r, cp); err != nil {
		return nil, err
	}
	r.traced(ctx)
	for r.phase != phaseDone {
		before := r.usage
		err := l.step(ctx, task, r)
		if r.usage != before {
			task.SetUsage(toldUsage(r.usage))
		}
		if err != nil {
			return nil, err
		}
	}
	return r.payload, nil
}

// begin restores a run from its last checkpoint. A run without a conversation
// has not begun.
func (l *loop) begin(ctx context.Context, task *mesh.Task, r *run, cp *state.Checkpoint) error {
	schema := l.contract.schema(task.Intent())
	system := l.system
	switch {
	case l.wantsJSON(task):
		var text json.RawMessage
		if schema != nil {
			text = schema.JSON()
		}
		system += jsonPrompt(text)
	case l.formatFor(task) == aaif.ResponseMarkdown:
		system += markdownPrompt
	}
	if cp != nil {
		r.id = cp.Doc.RunID
	}
	var err error
	if r.tools, err = l.tools.offer(ctx); err != nil {
		return err
	}
	switch {
	case cp == nil || len(cp.Doc.Conversation) == 0:
		if taken, err := l.beginDelegated(ctx, task, r, system); err != nil || taken {
			return err
		}
	case r.merges && len(cp.Mesh.Loop) == 0: // another platform's conversation, in which the outputs are not
		r.rewrite = true
		if err := l.loadMemory(ctx, task, r, cp); err != nil {
			return err
		}
	default:
		return l.restore(ctx, task, r, cp, system)
	}
	r.phase, r.taskFirst = phaseModel, true
	r.messages = []model.Message{model.System(system), model.User(taskMessage(ctx, r.input))}
	if context := l.referred(ctx, task); context != "" {
		r.messages = append(r.messages, model.User(context))
	}
	return nil
}

// step takes one step. Between two steps no call is under way.
func (l *loop) step(ctx context.Context, task *mesh.Task, r *run) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch r.phase {
	case phaseModel:
		return l.modelTurn(ctx, task, r)
	case phaseTools:
		return l.toolCalls(ctx, task, r)
	case phaseHandoff:
		payload, err := l.handoffs.Again(ctx, task, r.handoff, l.moment(ctx, task, r))
		if err == nil {
			r.relay(payload)
		}
		return err
	case phaseAnswer:
		return l.answer(ctx, task, r)
	case phaseAccount:
		return l.account(ctx, task, r)
	}
	return fmt.Errorf("agent run: there is no phase %q", r.phase)
}

// request returns the parts of a request that are the same in every turn of a
// run.
func (l *loop) request(r *run) model.Request {
	req := l.base
	req.Tools = r.tools.defs
	return req
}

package orchestrate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Handoffs are the rules by which an agent delegates a task in the middle of
// its run (AAIF, orchestration.handoff). The first rule whose condition holds
// decides. They are safe for concurrent use; nil has no rules.
type Handoffs struct {
	rules []handoffRule
	opts  HandoffOptions
}

// HandoffOptions are the settings of rules that are not in the document. The
// zero value resolves entity ids only, and reports nothing.
type HandoffOptions struct {
	// Directory finds the receivers. Default: [Entities].
	Directory Directory
	// Logger receives records about rules and their receivers. Default:
	// discarded.
	Logger *slog.Logger
	// Span, if set, is called before a task is delegated. It returns a function
	// that is called with the result.
	Span func(ctx context.Context, target Member, passContext bool) (context.Context, func(error))
}

type handoffRule struct {
	n           int // the rule's number from 1, in the document's order
	when        *condition.Program
	nl          string
	target      string // as it is written in the document
	ref         string // the ref of the subagent that target names, or target itself
	passContext bool
	passMemory  bool
	keys        []string // the subagent's pass_memory_keys
}

// NewHandoffs compiles the rules of a definition; it returns nil if there are none. A condition
// that does not compile, or is in plain words, is never satisfied; [condition.Check] and the
// document's own checks report it.
func NewHandoffs(def *aaif.Definition, opts HandoffOptions) *Handoffs {
	if opts.Directory == nil {
		opts.Directory = Entities{}
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	h := &Handoffs{opts: opts}
	o := def.Agent.Orchestration
	if o == nil {
		return nil
	}
	for i, rule := range o.Handoff {
		p, err := condition.Compile(rule.Condition, condition.Options{})
		if err != nil || p.Hint() {
			continue
		}
		r := handoffRule{
			n: i + 1, when: p, nl: rule.Condition.NL, target: rule.TargetAgent, ref: rule.TargetAgent,
			passContext: rule.PassContext == nil || *rule.PassContext, passMemory: rule.PassMemory != nil && *rule.PassMemory,
		}
		target := slices.IndexFunc(o.Subagents, func(s aaif.Subagent) bool { return cmp.Or(s.Alias, s.Ref) == rule.TargetAgent })
		if target < 0 { // no alias
			target = slices.IndexFunc(o.Subagents, func(s aaif.Subagent) bool { return s.Ref == rule.TargetAgent })
		}
		if target >= 0 {
			r.ref, r.keys = o.Subagents[target].Ref, o.Subagents[target].PassMemoryKeys
		}
		h.rules = append(h.rules, r)
	}
	if len(h.rules) == 0 {
		return nil
	}
	return h
}

// Moment is the state of a run when its rules are evaluated: after a turn of
// the model, a tool call, or a step of a team.
type Moment struct {
	// Facts are the facts for conditions: Output is the last output of the
	// model, a tool or a member, and Called the call that returned it, if any.
	// If Input and Task are not set, they are taken from the task.
	Facts condition.Facts
	// Due, if set, is called with the number of the matching rule, from 1,
	// before the task is delegated. An error from it ends the run instead.
	Due func(rule int) error
	// Talk returns the conversation and the memories to pass on. It is called
	// if the task is delegated. Default: the task, and its team's outputs as
	// this agent's messages.
	Talk func() ([]model.Message, []aaif.MemoryItem)
}

// After evaluates the rules, and delegates the task by the first one that holds. over reports
// whether one did; the handler must then return payload and err unchanged. A rule that cannot be
// evaluated does not hold, and is logged.
func (h *Handoffs) After(ctx context.Context, task *mesh.Task, at Moment) (payload json.RawMessage, over bool, err error) {
	if h == nil {
		return nil, false, nil
	}
	r, err := h.due(ctx, task, &at)
	if err != nil || r == nil {
		return nil, err != nil, err
	}
	if at.Due != nil {
		if err := at.Due(r.n); err != nil {
			return nil, true, err
		}
	}
	payload, err = h.hand(ctx, task, r, &at)
	return payload, true, err
}

// Again delegates a task by the rule that held at the last commit of the run: after a crash, or
// when the awaited answer has arrived.
func (h *Handoffs) Again(ctx context.Context, task *mesh.Task, rule int, at Moment) (json.RawMessage, error) {
	if h != nil {
		for i := range h.rules {
			if h.rules[i].n == rule {
				return h.hand(ctx, task, &h.rules[i], &at)
			}
		}
	}
	return nil, envelope.Errorf(envelope.CodeInternal, "the run cannot go on: it was about to be delegated by rule %d, which no longer exists", rule)
}

// due returns the first rule that holds.
func (h *Handoffs) due(ctx context.Context, task *mesh.Task, at *Moment) (*handoffRule, error) {
	e, facts := task.Envelope, &at.Facts
	facts.Handoff = true
	if facts.Input == nil {
		facts.Input = task.Input()
	}
	if facts.Task == nil {
		facts.Task = &condition.Task{ID: e.ID, Intent: e.Intent, From: e.From, To: e.To, Corr: e.Corr, Priority: string(e.Priority), Attempt: attempt(task)}
	}
	v, err := facts.Value()
	if err != nil {
		h.opts.Logger.Warn("handoff conditions not asked", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "err", err)
		return nil, nil
	}
	for i := range h.rules {
		r := &h.rules[i]
		holds, err := r.when.Eval(ctx, v)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			h.opts.Logger.Warn("handoff condition not evaluated, it does not hold", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "rule", r.n, "err", err)
		case holds:
			return r, nil
		}
	}
	return nil, nil
}

func attempt(task *mesh.Task) int {
	if r := task.Run(); r != nil {
		return r.View().Mesh.Attempt + 1
	}
	return 1
}

// hand delegates the task by a rule.
func (h *Handoffs) hand(ctx context.Context, task *mesh.Task, r *handoffRule, at *Moment) (payload json.RawMessage, err error) {
	m, err := h.receiver(ctx, task, r)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, ErrUnknown):
		return nil, envelope.Errorf(envelope.CodeNotFound, "handoff: no agent is known as %s: %w", clip.Cut(r.target, 128), err)
	default:
		return nil, envelope.Errorf(envelope.CodeUnavailable, "handoff: %s has no worker for now: %w", clip.Cut(r.target, 128), err)
	}
	if h.opts.Span != nil {
		var end func(error)
		ctx, end = h.opts.Span(ctx, m, r.passContext)
		defer func() {
			if mesh.IsDelegated(err) {
				end(nil)
			} else {
				end(err)
			}
		}()
	}
	return task.Delegate(ctx, mesh.Delegation{To: m.Entity, State: r.passedState(task, at), Reason: r.reason()})
}

// receiver finds the receiver of a rule. After a crash a run calls the same receiver again, even
// if another agent has the skill now: otherwise both would do the task.
func (h *Handoffs) receiver(ctx context.Context, task *mesh.Task, r *handoffRule) (Member, error) {
	if run := task.Run(); run != nil {
		for _, c := range run.View().Mesh.Calls {
			if c.Key == mesh.DelegationKey && !c.Live {
				return Member{Entity: c.To}, nil
			}
		}
	}
	return h.opts.Directory.Find(ctx, r.ref)
}

func (r *handoffRule) reason() string {
	if r.nl != "" {
		return r.nl
	}
	return fmt.Sprintf("handoff rule %d", r.n)
}

// passedState returns the state document for the receiver; nil if the rule passes nothing.
func (r *handoffRule) passedState(task *mesh.Task, at *Moment) *state.Checkpoint {
	if !r.passContext && !r.passMemory && len(r.keys) == 0 {
		return nil
	}
	talk := at.Talk
	if talk == nil {
		talk = func() ([]model.Message, []aaif.MemoryItem) { return teamTalk(task, at.Facts.Outputs), nil }
	}
	messages, memories := talk()
	c := state.New(task.Envelope.To, task.Envelope.ID, "")
	if r.passContext {
		now := time.Now()
		for _, m := range Passed(messages) {
			c.Append(m, now, 0)
		}
	}
	c.Doc.MemorySnapshot = r.memories(task, memories)
	if len(c.Doc.Conversation)+len(c.Doc.MemorySnapshot) == 0 {
		return nil
	}
	return c
}

// memories returns the items to pass on: those of scope long_term if the rule
// passes memory, and those that the subagent's keys name.
func (r *handoffRule) memories(task *mesh.Task, all []aaif.MemoryItem) []aaif.MemoryItem {
	return passing(task, all, func(m aaif.MemoryItem) bool {
		return r.passMemory && m.Scope == aaif.ScopeLongTerm || slices.Contains(r.keys, m.Key)
	})
}

// Passed returns the part of a conversation that may be passed to another agent. It leaves out
// system prompts, which belong to the agent; tool calls without an answer; and data that only the
// model's own provider understands.
func Passed(messages []model.Message) []model.Message {
	var out []model.Message
	for i, m := range messages {
		if m.Role == model.RoleSystem {
			continue
		}
		m.Provider = nil
		m.ToolCalls = slices.DeleteFunc(slices.Clone(m.ToolCalls), func(c model.ToolCall) bool { return !answered(messages[i+1:], c.ID) })
		if m.Role == model.RoleAssistant && m.Content == "" && len(m.ToolCalls) == 0 {
			continue
		}
		out = append(out, m)
	}
	return out
}

// answered reports whether a call has its answer among the messages after its turn. Those after
// the next turn do not count, because a later call may have the same id.
func answered(after []model.Message, id string) bool {
	for _, m := range after {
		switch {
		case m.Role == model.RoleAssistant:
			return false
		case m.Role == model.RoleTool && m.ToolCallID == id:
			return true
		}
	}
	return false
}

// teamTalk makes a conversation from a task and the outputs of a team's
// members.
func teamTalk(task *mesh.Task, outputs map[string]json.RawMessage) []model.Message {
	out := []model.Message{model.User(text(task.Input()))}
	for _, alias := range slices.Sorted(maps.Keys(outputs)) {
		out = append(out, model.Assistant(alias+": "+text(outputs[alias])))
	}
	return out
}

// text is a payload as text for a model.
func text(payload json.RawMessage) string {
	var only map[string]json.RawMessage
	var s string
	if json.Unmarshal(payload, &only) == nil && len(only) == 1 && json.Unmarshal(only["text"], &s) == nil {
		return s
	}
	return string(payload)
}

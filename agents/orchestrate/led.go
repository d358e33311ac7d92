package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// InvokeSubagent is the name of the function with which the documents of other
// platforms let a model call subagents. In a team that its model leads, a
// document that declares the function gets it.
const InvokeSubagent = "invoke_subagent"

// workKey is the context key of the team's work that its model takes part in.
type workKey struct{}

// within returns a context with the team's work, so that the model that leads the team can call the
// members as tools.
func (w *work) within(ctx context.Context) context.Context {
	return context.WithValue(ctx, workKey{}, w)
}

// Answered returns the ids of the members' tasks with a result so far, from a context that a team
// has passed to its model; nil for any other context.
func Answered(ctx context.Context) []string {
	w, _ := ctx.Value(workKey{}).(*work)
	if w == nil {
		return nil
	}
	return w.answered()
}

// Used returns the members' usage so far, from a context that a team has passed to its model; zero
// for any other context.
func Used(ctx context.Context) Usage {
	w, _ := ctx.Value(workKey{}).(*work)
	if w == nil {
		return Usage{}
	}
	return w.used()
}

// Tools returns the members of a team as tools for the model that leads it: one
// tool for each member, named by its alias.
func (t *Team) Tools() tool.Source { return leading{t} }

// Invoke returns the function [InvokeSubagent], with the parameters that a
// document declares for it; nil: the default ones. The member is named by the
// first of the arguments agent, subagent, subagent_alias, alias, agent_id, ref
// and name; its input is the first of input, task, payload, message, prompt and
// text.
func (t *Team) Invoke(declared *aaif.Tool) tool.Tool {
	d := tool.Definition{Name: InvokeSubagent, Description: "Calls one of your agents and returns its answer."}
	if declared != nil {
		if declared.Description != "" {
			d.Description = declared.Description
		}
		d.Parameters = declared.ParametersSchema
	}
	if d.Parameters == nil {
		var names []string
		for _, i := range t.plan.Workers() {
			names = append(names, t.plan.Members[i].Alias)
		}
		enum, err := json.Marshal(names)
		if err != nil {
			panic(fmt.Sprintf("orchestrate: names cannot be encoded: %v", err))
		}
		d.Parameters = fmt.Appendf(nil, `{"type":"object","properties":{"agent":{"type":"string","enum":%s},"input":{"description":"what the agent is to do: text, or an object"}},"required":["agent","input"]}`, enum)
	}
	return invoke{t, d}
}

// leading is the [tool.Source] of a team's members.
type leading struct{ t *Team }

// Tools lists the members, with their current descriptions.
func (l leading) Tools(ctx context.Context) ([]tool.Tool, error) {
	var out []tool.Tool
	workers := l.t.plan.Workers()
	aliases := make([]string, len(workers))
	for n, i := range workers {
		aliases[n] = l.t.plan.Members[i].Alias
	}
	names := ToolNames(aliases)
	for n, i := range workers {
		p := &l.t.plan.Members[i]
		d := tool.Definition{Name: names[n], Parameters: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","description":"what the agent is to do, with all that it has to know"}},"required":["text"]}`)}
		about := "Gives a task to the agent " + p.Alias + " and returns its answer."
		if m, err := l.t.dir.Find(ctx, p.Ref); err == nil && m.Def != nil {
			a := &m.Def.Agent
			about += " " + strings.TrimSpace(a.Goal)
			if len(a.Skills) > 0 {
				about += " Skills: " + strings.Join(a.Skills, ", ") + "."
			}
			if a.IO != nil && a.IO.InputSchema != nil {
				d.Parameters = a.IO.InputSchema
			}
		} else if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d.Description = about
		out = append(out, called{l.t, i, d})
	}
	return out, nil
}

// Close does nothing.
func (leading) Close() error { return nil }

// maxToolName bounds a tool's name, in bytes: providers refuse longer ones.
const maxToolName = 64

// ToolNames returns the names that the members of a team have as tools, by
// their aliases in document order. If two would have one name, the second ends
// with _2, and so on.
func ToolNames(aliases []string) []string {
	names := make([]string, len(aliases))
	taken := make(map[string]bool)
	last := make(map[string]int) // by the name without a suffix
	for i, alias := range aliases {
		plain := toolName(alias)
		name := plain
		for taken[name] {
			last[plain]++
			suffix := fmt.Sprintf("_%d", last[plain]+1)
			name = plain[:min(len(plain), maxToolName-len(suffix))] + suffix
		}
		names[i], taken[name] = name, true
	}
	return names
}

// toolName makes a tool name from an alias: characters that are not allowed
// become underscores.
func toolName(alias string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, alias)
	if name == "" || name[0] >= '0' && name[0] <= '9' || name[0] == '-' {
		name = "agent_" + name
	}
	return name[:min(len(name), maxToolName)]
}

// called is one member as a tool. Its task has the key of the tool call, so
// that a repeated call is the same task on the durable lane.
type called struct {
	t      *Team
	member int
	def    tool.Definition
}

func (c called) Definition() tool.Definition { return c.def }
func (c called) RepeatSafe() bool            { return true }
func (c called) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	return c.t.callTool(ctx, c.def.Name, c.member, args)
}

// invoke is the tool invoke_subagent.
type invoke struct {
	t   *Team
	def tool.Definition
}

func (v invoke) Definition() tool.Definition { return v.def }
func (v invoke) RepeatSafe() bool            { return true }
func (v invoke) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(args, &members); err != nil {
		return nil, &tool.Error{Kind: tool.ErrInvalidArguments, Tool: v.def.Name, Message: "the arguments must be an object"}
	}
	var name string
	for _, m := range []string{"agent", "subagent", "subagent_alias", "alias", "agent_id", "ref", "name"} {
		if json.Unmarshal(members[m], &name) == nil && name != "" {
			delete(members, m)
			break
		}
	}
	workers := v.t.plan.Workers()
	worker := slices.IndexFunc(workers, func(i int) bool { return v.t.plan.means(i, name) })
	if worker < 0 {
		var names []string
		for _, i := range workers {
			names = append(names, v.t.plan.Members[i].Alias)
		}
		return nil, &tool.Error{Kind: tool.ErrInvalidArguments, Tool: v.def.Name, Message: "no agent is called so; there are: " + strings.Join(names, ", ")}
	}
	payload := args
	for _, m := range []string{"input", "task", "payload", "message", "prompt", "text"} {
		raw, ok := members[m]
		if !ok {
			continue
		}
		var text string
		switch {
		case json.Unmarshal(raw, &text) == nil:
			payload = append(envelope.AppendString([]byte(`{"text":`), text), '}')
		case len(raw) > 0 && raw[0] == '{':
			payload = raw
		default:
			payload = append(envelope.AppendString([]byte(`{"text":`), string(raw)), '}')
		}
		break
	}
	return v.t.callTool(ctx, v.def.Name, workers[worker], payload)
}

// callTool calls a member with an input that the model has written.
func (t *Team) callTool(ctx context.Context, name string, member int, payload json.RawMessage) (json.RawMessage, error) {
	w, _ := ctx.Value(workKey{}).(*work)
	if w == nil {
		return nil, &tool.Error{Kind: tool.ErrUnavailable, Tool: name, Message: "there is no task that this would be part of"}
	}
	if ok, err := w.holds(ctx, member, payload); err != nil {
		return nil, err
	} else if !ok {
		return nil, &tool.Error{Kind: tool.ErrRefused, Tool: name, Message: "the condition under which this agent may be called does not hold"}
	}
	call := tool.KeyFrom(ctx)
	out, err := w.ask(ctx, memberCall{key: "tool/" + call, slot: w.nextSlot(), member: member, payload: payload, whole: true})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	}
	out.Call = call
	w.note(out)
	if !out.OK() {
		return nil, &tool.Error{Kind: tool.ErrFailed, Tool: name, Message: out.Err.Error(), Err: errors.Unwrap(out.Err)}
	}
	return out.Output, nil
}

// nextSlot returns the slot for the model's next call.
func (w *work) nextSlot() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pos.Calls++
	return w.pos.Calls - 1
}

// note adds the outcome of a call to the position, in place of an earlier outcome of
// the same call, which was repeated after a crash. It is stored with the call's
// receipt. A run keeps no output, because its conversation has it; a live task
// keeps the latest one of each member.
func (w *work) note(o Outcome) {
	if w.run != nil {
		o.Output = nil
	}
	w.mu.Lock()
	all := slices.DeleteFunc(w.pos.Outcomes, func(was Outcome) bool { return was.Call != "" && was.Call == o.Call })
	for i := range all {
		if o.Output != nil && all[i].Alias == o.Alias {
			all[i].Output = nil
		}
	}
	w.pos.Outcomes = append(all, o)
	w.pos.forgetFailures(o)
	w.fresh++
	w.mu.Unlock()
	w.stage(stepTeam(o.Alias, detail(&o), o.MS))
}

// returned returns the results of a run's tool calls, by their idempotency keys. The ledger has the
// keys, and the conversation has the results in the same order. Messages without a line in the
// ledger come from another platform.
func returned(cp *state.Checkpoint) map[string]string {
	texts := make(map[string]string)
	messages := slices.DeleteFunc(cp.Messages(), func(m model.Message) bool { return m.Role != model.RoleTool })
	for _, line := range slices.Backward(cp.Mesh.Effects) {
		if !line.Status.Final() {
			continue
		}
		last := len(messages) - 1
		if last < 0 || messages[last].ToolCallID != line.ID {
			break
		}
		if !messages[last].IsError {
			texts[line.Key] = messages[last].Content
		}
		messages = messages[:last]
	}
	return texts
}

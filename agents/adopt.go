package agents

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/state"
)

// adopt reads a document that another platform wrote, which has no loop member
// of x-aeemesh. The next phase is derived from its conversation and its pending
// tool calls. This agent's own system prompt is put first, because its own
// constraints hold here.
func (r *run) adopt(cp *state.Checkpoint, system string) {
	r.rewrite = true
	b := builder{}
	if r.messages[0].Role != model.RoleSystem || r.messages[0].Content != system {
		b.messages = append(b.messages, model.System(system))
	}
	for _, m := range r.messages {
		b.add(m)
	}
	for _, p := range cp.Doc.PendingToolCalls {
		b.call(model.ToolCall{ID: p.ID, Name: p.ToolName, Arguments: p.Arguments})
	}
	r.messages = b.messages
	if !cp.Doc.Iteration.IsSet() {
		for _, m := range r.messages {
			if m.Role == model.RoleAssistant {
				r.turns++
			}
		}
	}
	switch last := r.messages[len(r.messages)-1]; {
	case len(cp.Doc.PendingToolCalls) > 0:
		r.phase = phaseTools
	case last.Role == model.RoleAssistant:
		r.phase = phaseAnswer
	default:
		r.phase = phaseModel
	}
}

// builder assembles a conversation that providers accept. The specification's
// messages do not record which tools an assistant called; builder derives the
// calls from the tool messages that follow, which do not record the arguments.
type builder struct {
	messages []model.Message
	made     int // number of ids generated
}

func (b *builder) add(m model.Message) {
	switch m.Role {
	case model.RoleTool:
		if m.ToolCallID == "" {
			b.made++
			m.ToolCallID = fmt.Sprintf("adopted_%d", b.made)
		}
		m.ToolCallID = b.call(model.ToolCall{ID: m.ToolCallID, Name: m.ToolName})
	default:
		m.ToolCallID, m.ToolName = "", ""
	}
	b.messages = append(b.messages, m)
}

// call makes c one of the calls of the last assistant message, which must
// exist, and returns the call's id.
func (b *builder) call(c model.ToolCall) string {
	turn := len(b.messages) - 1
	for turn >= 0 && b.messages[turn].Role == model.RoleTool {
		turn--
	}
	if turn < 0 || b.messages[turn].Role != model.RoleAssistant {
		turn = len(b.messages)
		b.messages = append(b.messages, model.Assistant(""))
	}
	if strings.TrimSpace(c.Name) == "" {
		c.Name = "unknown"
	}
	if len(c.Arguments) == 0 {
		c.Arguments = json.RawMessage(`{}`)
	}
	base := c.ID
	for n := 2; b.called(turn, c.ID); n++ {
		c.ID = fmt.Sprintf("%s_%d", base, n)
	}
	m := &b.messages[turn]
	m.ToolCalls = append(m.ToolCalls, c)
	return c.ID
}

func (b *builder) called(turn int, id string) bool {
	if id == "" {
		return true
	}
	return slices.ContainsFunc(b.messages[turn].ToolCalls, func(c model.ToolCall) bool { return c.ID == id })
}

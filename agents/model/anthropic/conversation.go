package anthropic

import (
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
)

// goOn is the text of a user message that is added where the API requires one.
const goOn = "Continue."

// conversation converts messages to the system prompt and the messages of p.
func (a *ask) conversation(p *params, messages []model.Message) {
	add := func(role string, blocks ...content) {
		if len(blocks) == 0 {
			return
		}
		if n := len(p.Messages); n > 0 && p.Messages[n-1].Role == role {
			p.Messages[n-1].Content = append(p.Messages[n-1].Content, blocks...)
			return
		}
		p.Messages = append(p.Messages, message{Role: role, Content: blocks})
	}
	for _, m := range messages {
		switch m.Role {
		case model.RoleSystem:
			if !blank(m.Content) {
				p.System = append(p.System, newText(m.Content))
			}
		case model.RoleUser:
			add(user, text(m.Content)...)
		case model.RoleTool:
			add(user, result(m))
		case model.RoleAssistant:
			if len(p.Messages) == 0 {
				add(user, newText(goOn))
			}
			add(assistant, a.assistant(m)...)
		}
	}
	if n := len(p.Messages); n == 0 || p.Messages[n-1].Role == assistant {
		add(user, newText(goOn))
	}
	if a.pauses > 0 { // continue the paused turn
		var blocks []content
		for _, b := range a.turn.blocks {
			if b.kind != "text" || !blank(b.text.String()) {
				blocks = append(blocks, b.json())
			}
		}
		add(assistant, blocks...)
	}
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

func text(s string) []content {
	if blank(s) {
		return nil
	}
	return []content{newText(s)}
}

func result(m model.Message) content {
	r := &toolResult{Type: "tool_result", ToolUseID: model.PlainID(m.ToolCallID), IsError: m.IsError}
	if !blank(m.Content) {
		r.Content = []*textBlock{newText(m.Content)}
	}
	return r
}

// assistant converts an assistant's message. If Message.Provider has the blocks of the same model,
// it returns them all in their order.
func (a *ask) assistant(m model.Message) (blocks []content) {
	for _, p := range model.UnpackPieces(adapter, a.req.Model, m) {
		switch {
		case p.Raw != nil:
			blocks = append(blocks, p.Raw)
		case p.Call != nil:
			blocks = append(blocks, &toolUse{"tool_use", model.PlainID(p.Call.ID), p.Call.Name, model.ObjectOf(p.Call.Arguments)})
		default:
			blocks = append(blocks, text(p.Text)...)
		}
	}
	return blocks
}

// adapter names this package in model.Message.Provider; AAIF uses the same name for the provider.
const adapter = "anthropic"

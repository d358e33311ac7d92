package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/aeemesh/aeemesh/agents/model"
)

// goOn is what the user says where the API needs a message of the user's.
const goOn = "Continue."

// conversation puts messages into p.
func (a *ask) conversation(p *anthropic.MessageNewParams, messages []model.Message) {
	add := func(role anthropic.MessageParamRole, blocks ...anthropic.ContentBlockParamUnion) {
		if len(blocks) == 0 {
			return
		}
		if n := len(p.Messages); n > 0 && p.Messages[n-1].Role == role {
			p.Messages[n-1].Content = append(p.Messages[n-1].Content, blocks...)
			return
		}
		p.Messages = append(p.Messages, anthropic.MessageParam{Role: role, Content: blocks})
	}
	for _, m := range messages {
		switch m.Role {
		case model.RoleSystem:
			if !blank(m.Content) {
				p.System = append(p.System, anthropic.TextBlockParam{Text: m.Content})
			}
		case model.RoleUser:
			add(anthropic.MessageParamRoleUser, text(m.Content)...)
		case model.RoleTool:
			add(anthropic.MessageParamRoleUser, result(m))
		case model.RoleAssistant:
			if len(p.Messages) == 0 {
				add(anthropic.MessageParamRoleUser, anthropic.NewTextBlock(goOn))
			}
			add(anthropic.MessageParamRoleAssistant, a.assistant(m)...)
		}
	}
	if n := len(p.Messages); n == 0 || p.Messages[n-1].Role == anthropic.MessageParamRoleAssistant {
		add(anthropic.MessageParamRoleUser, anthropic.NewTextBlock(goOn))
	}
	if a.pauses > 0 { // the turn goes on where the provider left it
		var blocks []anthropic.ContentBlockParamUnion
		for _, b := range a.turn.blocks {
			if b.kind != "text" || !blank(b.text.String()) {
				blocks = append(blocks, verbatim(b.json()))
			}
		}
		add(anthropic.MessageParamRoleAssistant, blocks...)
	}
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

func text(s string) []anthropic.ContentBlockParamUnion {
	if blank(s) {
		return nil
	}
	return []anthropic.ContentBlockParamUnion{anthropic.NewTextBlock(s)}
}

func verbatim(block json.RawMessage) anthropic.ContentBlockParamUnion {
	return param.Override[anthropic.ContentBlockParamUnion](block)
}

func result(m model.Message) anthropic.ContentBlockParamUnion {
	r := anthropic.ToolResultBlockParam{ToolUseID: model.PlainID(m.ToolCallID)}
	if !blank(m.Content) {
		r.Content = []anthropic.ToolResultBlockParamContentUnion{{OfText: &anthropic.TextBlockParam{Text: m.Content}}}
	}
	if m.IsError {
		r.IsError = anthropic.Bool(true)
	}
	return anthropic.ContentBlockParamUnion{OfToolResult: &r}
}

// assistant is a turn of the assistant's: with all that its provider said, in
// its order, where that is at hand and was the same model's.
func (a *ask) assistant(m model.Message) (blocks []anthropic.ContentBlockParamUnion) {
	for _, p := range model.UnpackPieces(adapter, a.req.Model, m) {
		switch {
		case p.Raw != nil:
			blocks = append(blocks, verbatim(p.Raw))
		case p.Call != nil:
			blocks = append(blocks, anthropic.NewToolUseBlock(model.PlainID(p.Call.ID), model.ObjectOf(p.Call.Arguments), p.Call.Name))
		default:
			blocks = append(blocks, text(p.Text)...)
		}
	}
	return blocks
}

// adapter is this package's name in model.Message.Provider, and its provider's
// in AAIF.
const adapter = "anthropic"

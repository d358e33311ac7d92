package bedrock

import (
	"encoding/json"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
)

// conversation converts messages to the system prompt and the messages of in.
func (a *ask) conversation(in *converse, messages []model.Message) {
	add := func(role string, blocks ...content) {
		if len(blocks) == 0 {
			return
		}
		if n := len(in.Messages); n > 0 && in.Messages[n-1].Role == role {
			in.Messages[n-1].Content = append(in.Messages[n-1].Content, blocks...)
			return
		}
		in.Messages = append(in.Messages, message{role, blocks})
	}
	for _, m := range messages {
		switch {
		case m.Role != model.RoleSystem || blank(m.Content):
		case a.refused[system] != 0:
			add(user, text(m.Content)...)
		default:
			in.System = append(in.System, content{Text: m.Content})
		}
	}
	for _, m := range messages {
		switch m.Role {
		case model.RoleUser:
			add(user, text(m.Content)...)
		case model.RoleTool:
			add(user, result(m))
		case model.RoleAssistant:
			if len(in.Messages) == 0 {
				add(user, text(goOn)...)
			}
			add(assistant, a.assistant(m)...)
		}
	}
	if n := len(in.Messages); n == 0 || in.Messages[n-1].Role == assistant {
		add(user, text(goOn)...)
	}
}

// goOn is the text of a user message that is added where the API requires one.
const goOn = "Continue."

func blank(s string) bool { return strings.TrimSpace(s) == "" }

func text(s string) []content {
	if blank(s) {
		return nil
	}
	return []content{{Text: s}}
}

func result(m model.Message) content {
	said := m.Content
	if blank(said) { // a result must have content
		said = "(nothing)"
	}
	r := toolResult{ID: model.PlainID(m.ToolCallID), Content: []content{{Text: said}}}
	if m.IsError {
		r.Status = "error"
	}
	return content{ToolResult: &r}
}

// assistant converts an assistant's message. If Message.Provider has thoughts of the same model, it
// returns them, too, in their order.
func (a *ask) assistant(m model.Message) (blocks []content) {
	for _, p := range model.UnpackPieces(adapter, a.req.Model, m) {
		switch {
		case p.Raw != nil:
			if r := recall(p.Raw); r != nil {
				blocks = append(blocks, content{Reasoning: r})
			}
		case p.Call != nil:
			blocks = append(blocks, content{ToolUse: &toolUse{model.PlainID(p.Call.ID), p.Call.Name, model.ObjectOf(p.Call.Arguments)}})
		default:
			blocks = append(blocks, text(p.Text)...)
		}
	}
	return blocks
}

// thought is the form in which a conversation stores a block of reasoning.
type thought struct {
	Text      *string `json:"text,omitempty"`
	Signature string  `json:"signature,omitempty"`
	Redacted  []byte  `json:"redacted,omitempty"`
}

func recall(kept json.RawMessage) *reasoning {
	var t thought
	switch {
	case json.Unmarshal(kept, &t) != nil:
		return nil
	case t.Redacted != nil:
		return &reasoning{Redacted: t.Redacted}
	case t.Text != nil:
		return &reasoning{Text: &reasoningText{*t.Text, t.Signature}}
	}
	return nil
}

package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/aeemesh/aeemesh/agents/model"
)

// goOn is what the user says where the API needs a message of the user's.
const goOn = "Continue."

// conversation puts the messages into p. instruction ends the system prompt.
func (a *ask) conversation(p *anthropic.MessageNewParams, instruction string) {
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
	for _, m := range a.req.Messages {
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
	if instruction != "" {
		p.System = append(p.System, anthropic.TextBlockParam{Text: instruction})
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
	r := anthropic.ToolResultBlockParam{ToolUseID: wireID(m.ToolCallID)}
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
func (a *ask) assistant(m model.Message) []anthropic.ContentBlockParamUnion {
	if blocks, ok := a.remembered(m); ok {
		return blocks
	}
	blocks := text(m.Content)
	for _, c := range m.ToolCalls {
		blocks = append(blocks, toolUse(c))
	}
	return blocks
}

func toolUse(c model.ToolCall) anthropic.ContentBlockParamUnion {
	return anthropic.NewToolUseBlock(wireID(c.ID), input(c.Arguments), c.Name)
}

// input is a call's arguments as the object that the API requires. A model that
// wrote none sees what it wrote.
func input(arguments json.RawMessage) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(arguments, &object) == nil && object != nil {
		return arguments
	}
	return json.RawMessage(`{"arguments":` + string(arguments) + `}`)
}

var plainID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// wireID is a call's id as the API takes it: itself, unless another provider
// made it with other characters.
func wireID(id string) string {
	if plainID.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// member is this package's name in model.Message.Provider.
const member = "anthropic"

// memory is what a turn has besides its text and its calls, and how all of it
// was ordered.
type memory struct {
	Model  string  `json:"model"` // that was asked; thoughts are of no use to another
	Blocks []piece `json:"blocks"`
}

// piece is a block of a turn: so many bytes of its text, its next call, or
// something else as it came.
type piece struct {
	Text int             `json:"text,omitempty"`
	Call bool            `json:"call,omitempty"`
	Raw  json.RawMessage `json:"raw,omitempty"`
}

// remember is what the next request needs of a turn's blocks besides text and
// calls; nil where there is nothing else.
func remember(name string, blocks []*block) (json.RawMessage, error) {
	m := memory{Model: name}
	other := false
	for _, b := range blocks {
		switch b.kind {
		case "text":
			if n := b.text.Len(); n > 0 {
				m.Blocks = append(m.Blocks, piece{Text: n})
			}
		case "tool_use":
			m.Blocks = append(m.Blocks, piece{Call: true})
		default:
			other = true
			m.Blocks = append(m.Blocks, piece{Raw: b.json()})
		}
	}
	if !other {
		return nil, nil
	}
	return json.Marshal(map[string]memory{member: m})
}

// remembered are the blocks of a turn that this package has read before. What
// does not fit its text and its calls any more is not used.
func (a *ask) remembered(m model.Message) (blocks []anthropic.ContentBlockParamUnion, ok bool) {
	if len(m.Provider) == 0 {
		return nil, false
	}
	var all map[string]json.RawMessage
	var mine memory
	if json.Unmarshal(m.Provider, &all) != nil || json.Unmarshal(all[member], &mine) != nil || mine.Model != a.req.Model {
		return nil, false
	}
	rest, calls := m.Content, m.ToolCalls
	for _, p := range mine.Blocks {
		switch {
		case p.Raw != nil:
			if len(p.Raw) == 0 || p.Raw[0] != '{' {
				return nil, false
			}
			blocks = append(blocks, verbatim(p.Raw))
		case p.Call:
			if len(calls) == 0 {
				return nil, false
			}
			blocks = append(blocks, toolUse(calls[0]))
			calls = calls[1:]
		default:
			if p.Text <= 0 || p.Text > len(rest) {
				return nil, false
			}
			blocks = append(blocks, text(rest[:p.Text])...)
			rest = rest[p.Text:]
		}
	}
	return blocks, rest == "" && len(calls) == 0
}

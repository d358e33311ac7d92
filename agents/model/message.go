package model

import (
	"bytes"
	"encoding/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Role is the author of a [Message].
type Role string

// The roles, as AAIF Agent State names them.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of a conversation. Its JSON form uses the member names of AAIF Agent State
// conversation[], and adds tool_calls, is_error and provider, which that schema does not have.
type Message struct {
	Role    Role   `json:"role"`
	Content string `json:"content"`

	// ToolCalls are the calls that an assistant requests, in order.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`

	// ToolCallID is, in a tool message, the ID of the call it answers.
	ToolCallID string `json:"tool_call_id,omitempty"`

	// ToolName is, in a tool message, the tool that was called.
	ToolName string `json:"tool_name,omitempty"`

	// IsError marks a tool message whose Content is an error text.
	IsError bool `json:"is_error,omitempty"`

	// Provider is provider-specific data of an assistant's turn that the
	// provider needs in the next request, mainly a model's signed thoughts. It
	// is nil or a JSON object with one member for the adapter that wrote it,
	// under that package's name. A caller that stores a conversation must store
	// it. An adapter reads its own member, ignores all others, and must work
	// without any, because a conversation may come from another provider.
	Provider json.RawMessage `json:"provider,omitempty"`
}

// ToolCall is a model's request to call a tool.
type ToolCall struct {
	// ID is the provider's id of the call, unique in its message.
	ID string `json:"id"`

	// Name of the tool. A model may invent one that does not exist.
	Name string `json:"name"`

	// Arguments is always valid JSON, and an object if the model behaved. See
	// [Arguments] for what adapters do if it did not.
	Arguments json.RawMessage `json:"arguments"`
}

// Arguments turns the text that a model wrote as a call's arguments into valid
// JSON: the text itself if it is [Holdable], {} if it is blank or null, as some models
// write for tools without parameters, and otherwise a JSON string that holds the text,
// which argument validation refuses with an error that lets the model correct its call.
func Arguments(text string) json.RawMessage {
	raw := bytes.TrimSpace([]byte(text))
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}")
	}
	if Holdable(raw) {
		return raw
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		panic("model: marshal of a string failed: " + err.Error())
	}
	return quoted
}

// maxNesting is how deep a model's JSON may nest, so that it fits into an envelope together with
// the levels around it.
const maxNesting = 60

// Holdable reports whether envelopes and Agent States can contain a model's JSON: it is I-JSON
// (RFC 7493), so it has no duplicate names and no lone surrogates, and it is nested at most 60
// deep.
func Holdable(raw []byte) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	for dec.StackDepth() <= maxNesting {
		if _, err := dec.ReadToken(); err != nil {
			return jsontext.Value(raw).IsValid()
		}
	}
	return false
}

// System returns a system message.
func System(content string) Message { return Message{Role: RoleSystem, Content: content} }

// User returns a user message.
func User(content string) Message { return Message{Role: RoleUser, Content: content} }

// Assistant returns an assistant message.
func Assistant(content string, calls ...ToolCall) Message {
	return Message{Role: RoleAssistant, Content: content, ToolCalls: calls}
}

// ToolResult returns the tool message that answers call with a JSON value.
func ToolResult(call ToolCall, result json.RawMessage) Message {
	return Message{Role: RoleTool, Content: string(result), ToolCallID: call.ID, ToolName: call.Name}
}

// ToolFailure returns the tool message that answers call with an error text.
// The text is sent to the model's provider: do not put secrets into it.
func ToolFailure(call ToolCall, words string) Message {
	return Message{Role: RoleTool, Content: words, ToolCallID: call.ID, ToolName: call.Name, IsError: true}
}

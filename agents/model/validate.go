package model

import (
	"bytes"
	"encoding/json"
)

// Validate reports the first rule that the request violates, as an
// [ErrBadRequest]. It checks the form that the port promises to adapters, but
// not schemas or the contents of Params.Extended.
func (r *Request) Validate() error {
	if r == nil || len(r.Messages) == 0 {
		return Errorf(ErrBadRequest, "messages: at least one is needed")
	}
	for i, m := range r.Messages {
		if err := m.validate(i); err != nil {
			return err
		}
	}
	names := make(map[string]bool, len(r.Tools))
	for i, t := range r.Tools {
		switch {
		case t.Name == "":
			return Errorf(ErrBadRequest, "tools[%d].name: must not be empty", i)
		case names[t.Name]:
			return Errorf(ErrBadRequest, "tools[%d].name: %q is there twice", i, t.Name)
		case len(t.Parameters) > 0 && !isObject(t.Parameters):
			return Errorf(ErrBadRequest, "tools[%d].parameters: must be a JSON object", i)
		}
		names[t.Name] = true
	}
	switch r.Format.Type {
	case "", FormatText, FormatJSON:
	case FormatJSONSchema:
		if !isObject(r.Format.Schema) {
			return Errorf(ErrBadRequest, "format.schema: must be a JSON object for %s", FormatJSONSchema)
		}
	default:
		return Errorf(ErrBadRequest, "format.type: %q is not known", r.Format.Type)
	}
	if len(r.Params.Extended) > 0 && !isObject(r.Params.Extended) {
		return Errorf(ErrBadRequest, "params.extended: must be a JSON object")
	}
	if r.Params.MaxTokens < 0 {
		return Errorf(ErrBadRequest, "params.max_tokens: must not be negative")
	}
	return nil
}

func (m *Message) validate(i int) error {
	switch m.Role {
	case RoleSystem, RoleUser:
	case RoleAssistant:
		ids := make(map[string]bool, len(m.ToolCalls))
		for j, c := range m.ToolCalls {
			switch {
			case c.ID == "" || c.Name == "":
				return Errorf(ErrBadRequest, "messages[%d].tool_calls[%d]: id and name must not be empty", i, j)
			case ids[c.ID]:
				return Errorf(ErrBadRequest, "messages[%d].tool_calls[%d].id: %q is there twice", i, j, c.ID)
			case !json.Valid(c.Arguments):
				return Errorf(ErrBadRequest, "messages[%d].tool_calls[%d].arguments: not valid JSON", i, j)
			}
			ids[c.ID] = true
		}
	case RoleTool:
		if m.ToolCallID == "" {
			return Errorf(ErrBadRequest, "messages[%d].tool_call_id: must not be empty in a tool message", i)
		}
	default:
		return Errorf(ErrBadRequest, "messages[%d].role: %q is not known", i, m.Role)
	}
	if m.Role != RoleAssistant && len(m.ToolCalls) > 0 {
		return Errorf(ErrBadRequest, "messages[%d].tool_calls: only an assistant calls tools", i)
	}
	if len(m.Provider) > 0 && !isObject(m.Provider) {
		return Errorf(ErrBadRequest, "messages[%d].provider: must be a JSON object", i)
	}
	return nil
}

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{' && json.Valid(raw)
}

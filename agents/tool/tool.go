package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// Tool is a function that an agent may call.
//
// Implementers must:
//   - return the same Definition each time;
//   - treat args as untrusted, leave its bytes unchanged and retain none of
//     them; it is valid JSON, normally an object;
//   - return valid JSON in memory that is not written to later, or an error,
//     never both;
//   - return soon after ctx is done, with an error for which errors.Is(err,
//     ctx.Err()) holds;
//   - write error texts for the model: they reach the model's provider, so they
//     must not contain credentials or internals; these may be in the Err of an
//     [*Error];
//   - be safe for concurrent use.
type Tool interface {
	Definition() Definition
	Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error)
}

// Definition describes a tool to a model and to validators.
type Definition struct {
	// Name is unique among an agent's tools: a letter or underscore, then up
	// to 63 letters, digits, underscores or hyphens (AAIF tools[].name).
	Name string

	// Description describes the tool; models choose by it.
	Description string

	// Parameters is the JSON Schema of the arguments. Empty accepts any
	// object.
	Parameters json.RawMessage

	// Output is the JSON Schema of the result. Empty accepts any JSON.
	Output json.RawMessage
}

// Validate reports the first field that is wrong. It does not compile the
// schemas; [Guard] does.
func (d Definition) Validate() error {
	if !validName(d.Name) {
		return fmt.Errorf("tool name %q: want a letter or underscore, then up to 63 letters, digits, underscores or hyphens", d.Name)
	}
	for _, s := range []struct {
		field  string
		schema json.RawMessage
	}{{"parameters", d.Parameters}, {"output", d.Output}} {
		if len(s.schema) > 0 && !isObject(s.schema) {
			return fmt.Errorf("tool %s: %s schema: must be a JSON object", d.Name, s.field)
		}
	}
	return nil
}

func validName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return true
}

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{' && json.Valid(raw)
}

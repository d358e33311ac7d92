package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// redacting removes secrets from a tool's results and errors: a service that is
// sent a credential may send it back, and from there it would reach the model,
// the checkpoint and the logs.
type redacting struct {
	tool.Tool
	r *secret.Redactor
}

// redact wraps a tool in redacting, if there may be secrets to remove.
func redact(t tool.Tool, r *secret.Redactor) tool.Tool {
	if r == nil {
		return t
	}
	return redacting{t, r}
}

// RepeatSafe returns the tool's own declaration.
func (t redacting) RepeatSafe() bool { return tool.IsRepeatSafe(t.Tool) }

// Call calls the tool and redacts its result or error.
func (t redacting) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	result, err := t.Tool.Call(ctx, args)
	if err != nil {
		return nil, t.failure(err)
	}
	return t.result(result), nil
}

func (t redacting) failure(err error) error {
	var failed *tool.Error
	if !errors.As(err, &failed) {
		return t.r.Error(err)
	}
	clean := *failed
	clean.Message, clean.Err = t.r.Scrub(failed.Message), t.r.Error(failed.Err)
	return &clean
}

// result redacts a result. Its bytes stay as they are if it contains no secret.
func (t redacting) result(result json.RawMessage) json.RawMessage {
	if bytes.IndexByte(result, '\\') >= 0 { // escapes: a secret can be written in many ways
		if clean, changed := t.spelt(result); changed {
			return clean
		}
	}
	text := string(result)
	clean := t.r.Scrub(text)
	switch {
	case clean == text:
		return result
	case json.Valid([]byte(clean)):
		return json.RawMessage(clean)
	}
	quoted, err := json.Marshal(clean) // it was not a string, but a number, for example
	if err != nil {
		return json.RawMessage(`"` + secret.Redacted + `"`)
	}
	return quoted
}

// spelt redacts the strings in a result that contains escapes.
func (t redacting) spelt(result json.RawMessage) (clean json.RawMessage, changed bool) {
	d := json.NewDecoder(bytes.NewReader(result))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil, false
	}
	v = t.walk(v, &changed)
	if !changed {
		return nil, false
	}
	clean, err := json.Marshal(v)
	return slices.Clip(clean), err == nil
}

func (t redacting) walk(v any, changed *bool) any {
	switch v := v.(type) {
	case string:
		clean := t.r.Scrub(v)
		*changed = *changed || clean != v
		return clean
	case []any:
		for i := range v {
			v[i] = t.walk(v[i], changed)
		}
	case map[string]any:
		for name, member := range v {
			if clean := t.r.Scrub(name); clean != name {
				*changed = true
				delete(v, name)
				name = clean
			}
			v[name] = t.walk(member, changed)
		}
	}
	return v
}

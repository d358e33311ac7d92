package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// Filled is a payload that has been checked.
type Filled struct {
	// Values is the handler's input: the keys in the template's order with defaults filled in, by
	// the names of [Key.Property]. "other" has its key_type. Values may share the payload's memory.
	Values json.RawMessage
	// Other are the fragments of "other" and of unknown keys, cleaned and bounded. They are
	// untrusted: data for a model, never instructions.
	Other []string
	// Cut reports whether Other lacks a part of "other" or of an unknown key, beyond the bounds.
	Cut bool
	// Warnings are for the log, for example that a key is withdrawn.
	Warnings []string
	// Withdrawn are the names of the withdrawn keys that the payload has.
	Withdrawn []string
}

// Check checks a payload, the object with the keys. null for an optional key counts as absent. The
// error is a [*PayloadError] with every key that is wrong.
//
// A payload is never refused because of "other", if that is a string or an array of strings (SDSI
// 4.3). Invisible characters become spaces. Text beyond the bounds is cut off, with a warning.
func (f *Form) Check(payload json.RawMessage) (*Filled, error) {
	if len(payload) > MaxPayload {
		return nil, f.unread(schema.Problem{Keyword: "limit", Message: fmt.Sprintf("has more than %d bytes", MaxPayload)})
	}
	bad := f.schema.Validate(payload)
	var invalid *schema.ValidationError
	if errors.As(bad, &invalid) {
		for _, p := range invalid.Problems {
			switch {
			case p.Keyword == "json", p.Keyword == "limit", p.Keyword == "number", p.Pointer == "":
				return nil, f.unread(p)
			}
		}
	}
	c := checking{form: f, payload: payload, spans: make([]span, len(f.keys))}
	scanObject(payload, c.member)
	c.missing()
	if bad != nil {
		c.wrong()
	}
	if len(c.problems) > 0 {
		return nil, &PayloadError{SchemaID: f.id, Problems: c.problems, Truncated: c.truncated}
	}
	return c.filled(), nil
}

// Defaults returns the names, as in [Filled].Values, of the keys that get their default for a valid
// payload.
func (f *Form) Defaults(payload json.RawMessage) (names []string) {
	c := checking{form: f, payload: payload, spans: make([]span, len(f.keys))}
	scanObject(payload, c.member)
	for i := range f.keys {
		if k := &f.keys[i]; i != f.otherAt && k.Default != nil && c.value(i) == nil {
			names = append(names, k.property())
		}
	}
	return names
}

// unread returns the error for a payload that cannot be read as an object; it names the key whose
// value is the cause, if that is known.
func (f *Form) unread(p schema.Problem) error {
	out := KeyProblem{Pointer: p.Pointer, Rule: p.Keyword, Message: p.Message, Remedy: "send one JSON object of keys and values, each key once"}
	if p.Pointer != "" {
		name, _, _ := strings.Cut(p.Pointer[1:], "/")
		out.Key, out.Remedy = clip.Text(jsontext.Pointer(name).LastToken(), 64), remedies[p.Keyword]
		if i, ok := f.byName[out.Key]; ok {
			out = f.keys[i].problem(out.Rule, out.Message, out.Remedy)
			out.Pointer = p.Pointer
		}
	}
	return &PayloadError{SchemaID: f.id, Problems: []KeyProblem{out}}
}

// A checking is the check of one payload.
type checking struct {
	form      *Form
	payload   []byte
	spans     []span // of the values, by key; zero if the payload does not have the key
	unknown   []member
	problems  []KeyProblem
	truncated bool
	warnings  []string
}

// A span is a part of the payload.
type span struct{ from, to int32 }

// value returns a key's value, nil if the payload does not have it.
func (c *checking) value(key int) []byte {
	if s := c.spans[key]; s.to > 0 {
		return c.payload[s.from:s.to]
	}
	return nil
}

// member records one member of the payload.
func (c *checking) member(name []byte, at span) {
	value := c.payload[at.from:at.to]
	i, ok := c.form.byName[string(name)]
	switch {
	case !ok:
		c.stranger(string(name), value)
	case value[0] == 'n' && !c.form.keys[i].Required && c.form.keys[i].Type != Null:
		// null for an optional key counts as absent
	default:
		c.spans[i] = at
	}
}

// stranger records a member whose key the template does not have.
func (c *checking) stranger(name string, value []byte) {
	if c.form.unknown == UnknownToOther {
		if value[0] != 'n' {
			c.unknown = append(c.unknown, member{name, value})
		}
		return
	}
	c.fail(KeyProblem{Key: clip.Text(name, 64), Rule: "unknown", Message: "is no key of the template",
		Remedy: "leave it out, or say it in words in other; the keys are " + c.form.names()})
}

// missing reports the required keys that the payload does not have.
func (c *checking) missing() {
	if c.form.required == 0 {
		return
	}
	for i := range c.form.keys {
		if k := &c.form.keys[i]; k.Required && c.value(i) == nil {
			c.fail(k.problem("required", "is missing", "add it: "+k.wants))
		}
	}
}

// wrong checks the values one by one, so that a key with many problems does not hide the problems
// of others.
func (c *checking) wrong() {
	for i := range c.form.keys {
		k := &c.form.keys[i]
		value := c.value(i)
		if value == nil {
			continue
		}
		var invalid *schema.ValidationError
		if !errors.As(c.form.schema.Validate(one(k.Name, value)), &invalid) {
			continue
		}
		for n, p := range invalid.Problems {
			if n == maxPerKey {
				break
			}
			q := k.problem(p.Keyword, p.Message, "send "+k.wants)
			q.Pointer = p.Pointer
			c.fail(q)
		}
	}
}

func (c *checking) fail(p KeyProblem) {
	if len(c.problems) >= maxKeyProblems {
		c.truncated = true
		return
	}
	if p.Pointer == "" {
		p.Pointer = at("", p.Key)
	}
	c.problems = append(c.problems, p)
}

func (k *formKey) problem(rule, message, remedy string) KeyProblem {
	return KeyProblem{Key: k.Name, Rule: rule, Message: message, Description: clip.Text(k.Description, maxShownDescription), Remedy: remedy}
}

// filled writes the values in the template's order.
func (c *checking) filled() *Filled {
	f := c.form
	out := &Filled{}
	var other []byte
	if raw := c.value(f.otherAt); raw != nil || len(c.unknown) > 0 {
		out.Other, other, out.Cut = c.other(raw)
	}
	b := append(make([]byte, 0, len(c.payload)+f.extra+len(other)), '{')
	for i := range f.keys {
		k, value := &f.keys[i], c.value(i)
		switch {
		case i == f.otherAt:
			value = other
		case value == nil:
			value = k.Default
		case k.withdrawn:
			out.Withdrawn = append(out.Withdrawn, k.Name)
			c.warnings = append(c.warnings, "the key "+k.Name+" is withdrawn: it is accepted for now; fetch the template again")
		case k.Deprecated:
			c.warnings = append(c.warnings, "the key "+k.Name+" is deprecated: it will be withdrawn")
		}
		if len(value) == 0 {
			continue
		}
		if k.Type == Integer {
			value = inDigits(value)
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, k.prefix...), value...)
	}
	out.Values = append(b, '}')
	out.Warnings = c.warnings
	return out
}

// inDigits writes a whole number in plain digits: JSON Schema accepts 2.0 and 20e-1 as integers,
// but many decoders do not. The value has been validated.
func inDigits(value []byte) []byte {
	if !bytes.ContainsAny(value, ".eE") {
		return value
	}
	n, ok := new(big.Rat).SetString(string(value))
	if !ok || !n.IsInt() {
		return value
	}
	return n.Num().Append(nil, 10)
}

// scanObject calls f for each member of an object, with its name unquoted. raw has been validated,
// so the scan only searches for the ends of values.
func scanObject(raw []byte, f func(name []byte, value span)) {
	i := bytes.IndexByte(raw, '{') + 1
	for {
		i = skipTo(raw, i)
		if i >= len(raw) || raw[i] == '}' {
			return
		}
		if raw[i] == ',' {
			i++
			continue
		}
		end := endOfString(raw, i)
		name := raw[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name, _ = jsontext.AppendUnquote(nil, raw[i:end]) // validated before
		}
		i = skipTo(raw, skipTo(raw, end)+1)
		end = endOfValue(raw, i)
		f(name, span{int32(i), int32(end)})
		i = end
	}
}

// skipTo returns the index of the next byte that is not white space.
func skipTo(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// endOfString returns the index after the string that begins at i.
func endOfString(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// endOfValue returns the index after the value that begins at i.
func endOfValue(raw []byte, i int) int {
	if i < len(raw) && raw[i] == '"' {
		return endOfString(raw, i)
	}
	for depth := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = endOfString(raw, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return len(raw)
}

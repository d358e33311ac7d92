package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
)

const (
	maxExpanded = 4 << 20 // bytes of one turn
	maxDepth    = 64
	maxRefs     = 1024 // a turn
	spread      = "..."
)

// scope holds the values of a conversation that references can name.
type scope struct {
	input   json.RawMessage
	tools   map[string]json.RawMessage
	results []json.RawMessage
}

func newScope(messages []model.Message) *scope {
	s := &scope{tools: make(map[string]json.RawMessage)}
	names := make(map[string]string) // names of the tools, by call ID
	for _, m := range messages {
		switch m.Role {
		case model.RoleUser:
			if s.input == nil {
				s.input = asJSON(m.Content)
			}
		case model.RoleAssistant:
			for _, c := range m.ToolCalls {
				names[c.ID] = c.Name
			}
		case model.RoleTool:
			name := m.ToolName
			if name == "" {
				name = names[m.ToolCallID]
			}
			result := asJSON(m.Content)
			s.tools[name] = result
			s.results = append(s.results, result)
		}
	}
	return s
}

// asJSON returns content if it is JSON, and else as a JSON string.
func asJSON(content string) json.RawMessage {
	var buf bytes.Buffer
	if json.Compact(&buf, []byte(content)) == nil {
		return buf.Bytes()
	}
	return quote(content)
}

func quote(s string) json.RawMessage {
	raw, err := envelope.EncodeJSON(s)
	if err != nil {
		panic("builtin: encode of a string failed: " + err.Error())
	}
	return raw
}

// lookup returns the value of a reference.
func (s *scope) lookup(ref string) (json.RawMessage, error) {
	head, path, _ := strings.Cut(ref, ".")
	switch head {
	case "input":
		if s.input == nil {
			return nil, errors.New("${input}: the conversation has no user message")
		}
		if s.input[0] == '"' && path == "text" { // the user message of {"text": …} is the text alone
			return s.input, nil
		}
		if s.input[0] == '"' && path != "" {
			return nil, fmt.Errorf("${%s}: the task is a plain text, which has no %q", ref, path)
		}
		return follow(s.input, path, ref)
	case "tools":
		name, rest, _ := strings.Cut(path, ".")
		result, ok := s.tools[name]
		if !ok {
			return nil, fmt.Errorf("${%s}: the tool %q has no result yet", ref, name)
		}
		if result[0] == '"' && rest != "" {
			return nil, fmt.Errorf("${%s}: the latest result of the tool %q is a text, which has no %q; that of a call that failed is a text, too", ref, name, rest)
		}
		return follow(result, rest, ref)
	default: // results; checkReference accepts nothing else
		all := append(json.RawMessage{'['}, bytes.Join(asBytes(s.results), []byte(","))...)
		return follow(append(all, ']'), path, ref)
	}
}

func asBytes(in []json.RawMessage) [][]byte {
	out := make([][]byte, len(in))
	for i, r := range in {
		out[i] = r
	}
	return out
}

// follow follows a dotted path into a JSON value. The result is a part of it,
// unchanged.
func follow(value json.RawMessage, path, ref string) (json.RawMessage, error) {
	for path != "" {
		var step string
		step, path, _ = strings.Cut(path, ".")
		switch value[0] {
		case '{':
			var members map[string]json.RawMessage
			if err := json.Unmarshal(value, &members); err != nil {
				return nil, fmt.Errorf("${%s}: %w", ref, err)
			}
			next, ok := members[step]
			if !ok {
				return nil, fmt.Errorf("${%s}: there is no member %q", ref, step)
			}
			value = next
		case '[':
			var list []json.RawMessage
			if err := json.Unmarshal(value, &list); err != nil {
				return nil, fmt.Errorf("${%s}: %w", ref, err)
			}
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(list) {
				return nil, fmt.Errorf("${%s}: there is no element %q in a list of %d", ref, step, len(list))
			}
			value = list[i]
		default:
			return nil, fmt.Errorf("${%s}: %q leads into something that is neither object nor list", ref, step)
		}
	}
	return value, nil
}

func checkReference(ref string) error {
	head, path, dotted := strings.Cut(ref, ".")
	ok := head == "input" || head == "results" || head == "tools" && dotted
	if ok && dotted {
		for step := range strings.SplitSeq(path, ".") {
			ok = ok && step != ""
		}
	}
	if !ok {
		return fmt.Errorf("${%s}: want ${input…}, ${tools.NAME…} or ${results…}", ref)
	}
	return nil
}

// expander replaces the references of one turn. Without a scope it only checks
// their form and replaces each by null.
type expander struct {
	ctx   context.Context // of the call that the expander belongs to
	scope *scope
	size  int // of the expanded text so far
	refs  int // number of references resolved so far
}

func (e *expander) grow(n int) error {
	if e.size += n; e.size > maxExpanded {
		return fmt.Errorf("it expands to more than %d bytes", maxExpanded)
	}
	return nil
}

func (e *expander) resolve(ref string) (json.RawMessage, error) {
	if err := checkReference(ref); err != nil {
		return nil, err
	}
	if e.refs++; e.refs > maxRefs {
		return nil, fmt.Errorf("more than %d references", maxRefs)
	}
	if err := e.ctx.Err(); err != nil {
		return nil, err
	}
	if e.scope == nil {
		return json.RawMessage("null"), nil
	}
	value, err := e.scope.lookup(ref)
	if err != nil {
		return nil, err
	}
	return value, e.grow(len(value))
}

// whole returns the reference if s is one reference and nothing else.
func whole(s string) (ref string, ok bool) {
	inner, ok := strings.CutPrefix(s, "${")
	if !ok {
		return "", false
	}
	ref, rest, ok := strings.Cut(inner, "}")
	return ref, ok && rest == ""
}

// text expands references in s by their text.
func (e *expander) text(s string) (string, error) {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), e.grow(b.Len())
		}
		if i > 0 && s[i-1] == '$' { // $${ is a plain ${
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		ref, rest, ok := strings.Cut(s[i+2:], "}")
		if !ok {
			return "", fmt.Errorf("%q has a ${ without its }; a plain ${ is written $${", s)
		}
		value, err := e.resolve(ref)
		if err != nil {
			return "", err
		}
		if value[0] == '"' {
			var str string
			if err := json.Unmarshal(value, &str); err != nil {
				return "", fmt.Errorf("${%s}: %w", ref, err)
			}
			b.WriteString(str)
		} else {
			b.Write(value)
		}
		s = rest
	}
}

// value expands a JSON template into compact JSON; members keep their order and
// numbers their digits.
func (e *expander) value(template json.RawMessage) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(template))
	dec.UseNumber()
	var out bytes.Buffer
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if err := e.expand(dec, tok, &out, 0); err != nil {
		return nil, err
	}
	return out.Bytes(), e.grow(out.Len())
}

// expand writes the value that tok begins.
func (e *expander) expand(dec *json.Decoder, tok json.Token, out *bytes.Buffer, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nesting exceeds the bound of %d", maxDepth)
	}
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '{' {
			return e.object(dec, out, depth)
		}
		return e.list(dec, out, depth)
	case string:
		if ref, ok := whole(tok); ok {
			value, err := e.resolve(ref)
			if err != nil {
				return err
			}
			out.Write(value)
			return nil
		}
		text, err := e.text(tok)
		if err != nil {
			return err
		}
		out.Write(quote(text))
	case json.Number:
		out.WriteString(tok.String())
	case bool:
		out.WriteString(strconv.FormatBool(tok))
	case nil:
		out.WriteString("null")
	}
	return nil
}

func (e *expander) object(dec *json.Decoder, out *bytes.Buffer, depth int) error {
	out.WriteByte('{')
	for first := true; ; first = false {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		name, ok := tok.(string)
		if !ok { // the closing brace follows
			break
		}
		if !first {
			out.WriteByte(',')
		}
		out.Write(quote(name))
		out.WriteByte(':')
		if tok, err = dec.Token(); err != nil {
			return err
		}
		if err := e.expand(dec, tok, out, depth+1); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	out.WriteByte('}')
	return nil
}

func (e *expander) list(dec *json.Decoder, out *bytes.Buffer, depth int) error {
	out.WriteByte('[')
	first := true
	comma := func() {
		if !first {
			out.WriteByte(',')
		}
		first = false
	}
	for {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		if tok == json.Delim(']') {
			break
		}
		if s, ok := tok.(string); ok {
			if ref, ok := whole(s); ok && strings.HasSuffix(ref, spread) {
				elements, err := e.elements(strings.TrimSuffix(ref, spread))
				if err != nil {
					return err
				}
				for _, el := range elements {
					comma()
					out.Write(el)
				}
				continue
			}
		}
		comma()
		if err := e.expand(dec, tok, out, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

// elements resolves a reference to a list whose elements are inserted into another list.
func (e *expander) elements(ref string) ([]json.RawMessage, error) {
	value, err := e.resolve(ref)
	if err != nil || e.scope == nil {
		return nil, err
	}
	var list []json.RawMessage
	if value[0] != '[' {
		return nil, fmt.Errorf("${%s%s}: only a list can be spread", ref, spread)
	}
	if err := json.Unmarshal(value, &list); err != nil {
		return nil, fmt.Errorf("${%s%s}: %w", ref, spread, err)
	}
	return list, nil
}

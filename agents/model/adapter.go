package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// This file has the functions that the adapters below this package share.

// Merge sets the members of the JSON object members in the JSON object object:
// existing members keep their order, new ones follow, and each value is copied
// byte for byte (AAIF, "LLM Provider Routing": params.extended is sent
// verbatim).
func Merge(object, members []byte) ([]byte, error) {
	var order []string
	values := make(map[string]json.RawMessage)
	for _, o := range [][]byte{object, members} {
		if err := eachMember(o, func(name string, value json.RawMessage) {
			if _, known := values[name]; !known {
				order = append(order, name)
			}
			values[name] = value
		}); err != nil {
			return nil, err
		}
	}
	out := []byte{'{'}
	for i, name := range order {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(envelope.AppendString(out, name), ':'), values[name]...)
	}
	return append(out, '}'), nil
}

// eachMember calls the function member for each member of a JSON object. Text after the object is
// an error.
func eachMember(object []byte, member func(name string, value json.RawMessage)) error {
	dec := json.NewDecoder(bytes.NewReader(object))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return errors.New("not a JSON object")
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		name, ok := tok.(string)
		if !ok {
			return errors.New("a member without a name")
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		member(name, value)
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

// maxRetryAfter bounds the delay that an adapter accepts from a provider.
const maxRetryAfter = 24 * time.Hour

// RetryAfter returns the delay before a retry that a provider asks for in the
// headers of its answer: Retry-After-Ms, or Retry-After in seconds or as a date
// (RFC 9110, 10.2.3). It is 0 without such a header, and at most a day.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	for _, c := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		v := h.Get(c.name)
		if v == "" {
			continue
		}
		if n, err := strconv.ParseFloat(v, 64); err == nil && n >= 0 {
			return time.Duration(min(n*float64(c.unit), float64(maxRetryAfter)))
		}
		if at, err := http.ParseTime(v); err == nil {
			return min(max(at.Sub(now), 0), maxRetryAfter)
		}
	}
	return 0
}

const maxQuote = 300 // runes of a provider's text

var credential = pattern.Of(`(?i)\bbearer\s+\S+|\b(sk|pk|rk|gsk|xai|hf)[-_][A-Za-z0-9_*.\-]{6,}|\b(AKIA|ASIA)[A-Z0-9]{12,}|\bAIza[A-Za-z0-9_\-]{20,}|\bABSK[A-Za-z0-9+/=]{12,}`)

// Quote shortens a provider's text to one line for Error.Message. It removes
// the given secrets, which the provider may repeat, and everything else that
// looks like a credential.
func Quote(text string, secrets ...string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[key]")
		}
	}
	text = credential.RE().ReplaceAllString(text, "[key]")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if r := []rune(text); len(r) > maxQuote {
		text = string(r[:maxQuote]) + "…"
	}
	return text
}

var tooLong = pattern.Of(`(?i)context.?(length|window|size)|(prompt|input|request) is too (long|large)|too many (input )?tokens|maximum (context|prompt|input)|max(imum)? tokens.*exceed`)

// TooLong reports whether a provider's text about a refused request means that
// the conversation does not fit the model. Few providers have a code for that.
func TooLong(words string) bool { return tooLong.RE().MatchString(words) }

var plainID = pattern.Of(`^[a-zA-Z0-9_-]{1,64}$`)

// PlainID returns a tool call's id in the characters that the strictest
// providers accept. Ids with other characters, which come from another
// provider, are converted.
func PlainID(id string) string {
	if plainID.RE().MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// ObjectOf returns a call's arguments as a JSON object, which some providers
// require. If the model wrote something else, it becomes the member arguments,
// so that the model sees what it wrote.
func ObjectOf(arguments json.RawMessage) json.RawMessage {
	if isObject(arguments) {
		return arguments
	}
	return json.RawMessage(`{"arguments":` + string(arguments) + `}`)
}

// InWords adds a format that a provider does not support natively to the system prompt of a
// conversation. It does not modify the messages. It returns them unchanged if their system prompt
// contains the schema already, or if no format is requested.
func InWords(f Format, messages []Message) []Message {
	words := "Answer with one JSON value and nothing else: no words around it and no code fence."
	switch f.Type {
	case FormatJSON:
	case FormatJSONSchema:
		words += " It must be valid against this JSON Schema:\n" + string(f.Schema)
	default:
		return messages
	}
	if len(messages) == 0 || messages[0].Role != RoleSystem {
		return append([]Message{System(words)}, messages...)
	}
	if len(f.Schema) > 0 && strings.Contains(messages[0].Content, string(f.Schema)) {
		return messages
	}
	out := append([]Message(nil), messages...)
	out[0].Content += "\n\n" + words
	return out
}

// Unfenced removes the Markdown code fence that models often put around JSON.
func Unfenced(s string) string {
	s = strings.TrimSpace(s)
	body, ok := strings.CutPrefix(s, "```")
	if !ok {
		return s
	}
	body, ok = strings.CutSuffix(body, "```")
	if !ok {
		return s
	}
	if language, rest, ok := strings.Cut(body, "\n"); ok && !strings.ContainsAny(language, "{[") {
		body = rest
	}
	return strings.TrimSpace(body)
}

// TakenIDs returns the ids of the calls in the request's conversation, for [FreshID]: the next
// turn may go to an adapter that refuses a conversation in which an id occurs twice.
func TakenIDs(req *Request) map[string]bool {
	ids := make(map[string]bool)
	for _, m := range req.Messages {
		for _, c := range m.ToolCalls {
			ids[c.ID] = true
		}
	}
	return ids
}

// FreshID returns the id of a call. If that is empty or taken, it returns the first of call_n,
// call_n+1 and so on that is free. It adds the returned id to taken.
func FreshID(taken map[string]bool, id string, n int) string {
	for ; id == "" || taken[id]; n++ {
		id = fmt.Sprintf("call_%d", n)
	}
	taken[id] = true
	return id
}

// CalledTools returns the request's tools. If there are none, it returns those that the
// conversation has called, without their parameters: some providers require the
// definitions of all of them.
func CalledTools(req *Request) []ToolDef {
	if len(req.Tools) > 0 {
		return req.Tools
	}
	var defs []ToolDef
	known := map[string]bool{}
	for _, m := range req.Messages {
		for _, c := range m.ToolCalls {
			if !known[c.Name] {
				known[c.Name] = true
				defs = append(defs, ToolDef{Name: c.Name})
			}
		}
	}
	return defs
}

// Tell passes a piece of an answer's text to the caller of Generate, unless it is empty or
// onDelta is nil. Its error is a [CallbackError].
func Tell(onDelta func(Delta) error, text string) error {
	if text == "" || onDelta == nil {
		return nil
	}
	if err := onDelta(Delta{Text: text}); err != nil {
		return CallbackError{err}
	}
	return nil
}

// CallbackError marks an error of the caller's callback within an adapter. The adapter returns Err
// itself.
type CallbackError struct{ Err error }

// Error returns the text of Err.
func (e CallbackError) Error() string { return e.Err.Error() }

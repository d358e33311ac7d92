package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// What the adapters below this package have in common is in this file.

// Merge sets the members of the JSON object members in the JSON object object:
// in its order, new ones behind it, each value byte for byte as it is written
// (AAIF, "LLM Provider Routing": params.extended travels verbatim).
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
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, quoted...), ':'), values[name]...)
	}
	return append(out, '}'), nil
}

// eachMember reads a JSON object, no more and no less.
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

// maxRetryAfter bounds the advice that an adapter takes from a provider.
const maxRetryAfter = 24 * time.Hour

// RetryAfter is how long a provider asks to be left alone in the headers of its
// answer: Retry-After-Ms, or Retry-After in seconds or as a date (RFC 9110,
// 10.2.3). It is 0 where there is no such header, and at most a day.
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

var credential = regexp.MustCompile(`(?i)\bbearer\s+\S+|\b(sk|pk|rk|gsk|xai|hf)[-_][A-Za-z0-9_*.\-]{6,}|\b(AKIA|ASIA)[A-Z0-9]{12,}|\bAIza[A-Za-z0-9_\-]{20,}|\bABSK[A-Za-z0-9+/=]{12,}`)

// Quote makes a provider's text fit for Error.Message: the secrets that it may
// repeat are cut out of it, and whatever else looks like a credential; it is
// one line and short.
func Quote(text string, secrets ...string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[key]")
		}
	}
	text = credential.ReplaceAllString(text, "[key]")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if r := []rune(text); len(r) > maxQuote {
		text = string(r[:maxQuote]) + "…"
	}
	return text
}

var tooLong = regexp.MustCompile(`(?i)context.?(length|window|size)|(prompt|input|request) is too (long|large)|too many (input )?tokens|maximum (context|prompt|input)|max(imum)? tokens.*exceed`)

// TooLong reports whether a provider's words, of a request that it refused, say
// that the conversation does not fit the model. Few have a code for it.
func TooLong(words string) bool { return tooLong.MatchString(words) }

var plainID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// PlainID is a tool call's id in the characters that the strictest providers
// take: itself, unless another provider made it with others. A conversation may
// have been begun elsewhere.
func PlainID(id string) string {
	if plainID.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// ObjectOf is a call's arguments as a JSON object, which some providers
// require even where the model wrote something else: then it sees what it
// wrote in the member arguments.
func ObjectOf(arguments json.RawMessage) json.RawMessage {
	if isObject(arguments) {
		return arguments
	}
	return json.RawMessage(`{"arguments":` + string(arguments) + `}`)
}

// InWords puts a format that a provider cannot be asked for natively into the
// conversation's system prompt. The messages are not changed; they come back as
// they are where their system prompt has the schema already, or no format is
// asked for.
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

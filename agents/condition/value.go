package condition

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// Limits of values.
const (
	MaxValue = 1 << 20 // bytes of JSON
	MaxDepth = 100     // nested arrays and objects
)

// Value is decoded JSON, on which any number of conditions can be evaluated.
// The zero value is null.
type Value struct{ data any }

// Parse decodes a value. Before decoding it refuses input that is larger than
// [MaxValue] or nested deeper than [MaxDepth]. It refuses what RFC 7493
// (I-JSON) forbids: duplicate names, text that is not UTF-8, numbers beyond a
// double.
func Parse(data []byte) (Value, error) { return parse(data) }

func parse(data []byte, opts ...json.Options) (Value, error) {
	if len(data) > MaxValue {
		return Value{}, &Error{Kind: ErrTooLarge, Reason: fmt.Errorf("a value has at most %d bytes, this one %d", MaxValue, len(data))}
	}
	if nesting(data) > MaxDepth {
		return Value{}, &Error{Kind: ErrTooLarge, Reason: fmt.Errorf("the value is nested deeper than %d", MaxDepth)}
	}
	var v any
	if err := json.Unmarshal(data, &v, opts...); err != nil {
		return Value{}, &Error{Kind: ErrValue, Reason: fmt.Errorf("%w: %s", ErrValue, plain(err))}
	}
	if !finite(v) {
		return Value{}, &Error{Kind: ErrValue, Reason: fmt.Errorf("%w: a number is beyond what a double holds", ErrValue)}
	}
	return Value{v}, nil
}

// exact decodes numbers that a double would change to [limit.Number].
var exact = json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	text, err := d.ReadValue()
	if err == nil {
		*v = limit.NumberOf(string(text))
	}
	return err
}))

// plain returns the codec's error without its prefix.
func plain(err error) string {
	text := err.Error()
	for _, prefix := range []string{"jsontext: ", "json: "} {
		text = strings.ReplaceAll(text, prefix, "")
	}
	return text
}

// nesting returns the maximum number of open brackets outside of texts.
func nesting(data []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

func finite(v any) bool {
	switch v := v.(type) {
	case float64:
		return !math.IsInf(v, 0) && math.Abs(v) < math.MaxFloat64 // the codec clamps numbers that are out of range
	case []any:
		for _, e := range v {
			if !finite(e) {
				return false
			}
		}
	case map[string]any:
		for _, e := range v {
			if !finite(e) {
				return false
			}
		}
	}
	return true
}

// MarshalJSON encodes the value, with members in the order of their names.
func (v Value) MarshalJSON() ([]byte, error) {
	return json.Marshal(v.data, json.Deterministic(true), jsontext.EscapeForHTML(false))
}

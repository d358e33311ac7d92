package aaif

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// CBOR documents may contain only what JSON can express: text keys, text,
// numbers, bools, null, arrays and maps of definite length (Binary Encoding).
// Everything else is refused, so that both encodings behave alike.

// cborEncMode is RFC 8949's core deterministic encoding.
var cborEncMode = must(cbor.CoreDetEncOptions().EncMode())

// cborUndefined is the simple value 23, which the decoder would otherwise take for null.
const cborUndefined = 23

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constants: a failure would show in every test
	}
	return v
}

var cborSimpleValues = must(cbor.NewSimpleValueRegistryFromDefaults(cbor.WithRejectedSimpleValue(cborUndefined)))

// cborDecMode makes the decoder for a document of so many bytes. Each element takes at least one
// byte, which bounds their number.
func cborDecMode(bytes, maxDepth int) (cbor.DecMode, error) {
	elements := min(max(bytes, 16), math.MaxInt32) // the library's own limits
	return cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		UTF8:             cbor.UTF8RejectInvalid,
		NaN:              cbor.NaNDecodeForbidden,
		Inf:              cbor.InfDecodeForbidden,
		DefaultMapType:   reflect.TypeFor[map[string]any](),
		SimpleValues:     cborSimpleValues,
		MaxArrayElements: elements,
		MaxMapPairs:      elements,
		MaxNestedLevels:  maxDepth + 4, // MaxNestedLevels: the library's minimum is 4; the walk below applies the exact limit
	}.DecMode()
}

// decodeCBOR converts CBOR to JSON text, with members sorted by name.
func decodeCBOR(data []byte, maxDepth int) (jsontext.Value, *Problem) {
	mode, err := cborDecMode(len(data), maxDepth)
	if err != nil {
		panic(err) // see must
	}
	var v any
	if err := mode.Unmarshal(data, &v); err != nil {
		return nil, cborProblem(data, err, maxDepth)
	}
	var out bytes.Buffer
	c := cborConverter{enc: jsontext.NewEncoder(&out), maxDepth: maxDepth}
	if p := c.value(v, "", 1); p != nil {
		return nil, p
	}
	return jsontext.Value(bytes.TrimRight(out.Bytes(), "\n")), nil
}

// A cborConverter writes decoded CBOR as JSON.
type cborConverter struct {
	enc      *jsontext.Encoder
	maxDepth int
}

func (c *cborConverter) value(v any, pointer string, depth int) *Problem {
	switch v := v.(type) {
	case nil:
		return c.write(jsontext.Null, pointer)
	case bool:
		return c.write(jsontext.Bool(v), pointer)
	case string:
		return c.write(jsontext.String(v), pointer)
	case uint64:
		return c.write(jsontext.Uint(v), pointer)
	case int64:
		return c.write(jsontext.Int(v), pointer)
	case big.Int: // a negative integer below int64
		return c.number(v.String(), pointer)
	case float64:
		return c.number(formatFloat(v), pointer)
	case []any:
		if depth > c.maxDepth {
			p := errorf(pointer, RuleTooDeep, "%s", tooDeep(c.maxDepth).message)
			return &p
		}
		return c.array(v, pointer, depth)
	case map[string]any:
		if depth > c.maxDepth {
			p := errorf(pointer, RuleTooDeep, "%s", tooDeep(c.maxDepth).message)
			return &p
		}
		return c.object(v, pointer, depth)
	case []byte:
		p := errorf(pointer, RuleCBOR, "a byte string has no counterpart in JSON").hint("send text, in base64 where it is binary")
		return &p
	}
	p := errorf(pointer, RuleCBOR, "this has no counterpart in JSON")
	return &p
}

func (c *cborConverter) object(m map[string]any, pointer string, depth int) *Problem {
	if p := c.write(jsontext.BeginObject, pointer); p != nil {
		return p
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		at := child(pointer, name)
		if p := c.write(jsontext.String(name), at); p != nil {
			return p
		}
		if p := c.value(m[name], at, depth+1); p != nil {
			return p
		}
	}
	return c.write(jsontext.EndObject, pointer)
}

func (c *cborConverter) array(items []any, pointer string, depth int) *Problem {
	if p := c.write(jsontext.BeginArray, pointer); p != nil {
		return p
	}
	for i, item := range items {
		if p := c.value(item, child(pointer, i), depth+1); p != nil {
			return p
		}
	}
	return c.write(jsontext.EndArray, pointer)
}

func (c *cborConverter) number(lit, pointer string) *Problem {
	if err := c.enc.WriteValue(jsontext.Value(lit)); err != nil {
		p := errorf(pointer, RuleCBOR, "no JSON for this: %v", err)
		return &p
	}
	return nil
}

func (c *cborConverter) write(t jsontext.Token, pointer string) *Problem {
	if err := c.enc.WriteToken(t); err != nil {
		p := errorf(pointer, RuleCBOR, "no JSON for this: %v", err)
		return &p
	}
	return nil
}

// formatFloat writes a double as the shortest JSON number that reads back as
// the same value. It always has a fraction or an exponent, so that 1.0 does not
// become the integer 1 on a round trip.
func formatFloat(f float64) string {
	s := string(jsontext.AppendFloat(nil, f, 64))
	if f == 0 && math.Signbit(f) {
		s = "-0"
	}
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// cborProblem converts an error of the library to a problem.
func cborProblem(data []byte, err error, maxDepth int) *Problem {
	var (
		dup    *cbor.DupMapKeyError
		tags   *cbor.TagsMdError
		indef  *cbor.IndefiniteLengthError
		nested *cbor.MaxNestedLevelError
		sem    *cbor.SemanticError
		typ    *cbor.UnmarshalTypeError
		extra  *cbor.ExtraneousDataError
		value  *cbor.UnacceptableDataItemError
	)
	p := errorf("", RuleCBOR, "")
	switch {
	case len(data) == 0:
		p.Rule, p.Message = RuleSyntax, "the document is empty"
	case errors.As(err, &dup):
		p.Rule, p.Message = RuleDuplicateName, fmt.Sprintf("the name %s is in a map twice", clip.Text(fmt.Sprint(dup.Key), 60))
	case errors.As(err, &tags):
		p.Message, p.Hint = "tags are not accepted", "send plain text, numbers, arrays and maps"
	case errors.As(err, &indef):
		p.Message, p.Hint = "items of indefinite length are not accepted", "send their length first"
	case errors.As(err, &nested):
		p.Rule, p.Message = RuleTooDeep, tooDeep(maxDepth).message
	case errors.As(err, &sem): // the library's only semantic error of well-formed CBOR
		p.Rule, p.Message = RuleEncoding, "a text string is not UTF-8"
	case errors.As(err, &typ):
		p.Message, p.Hint = "a map has a key that is not text", "integer keys are no compression here: names stay names"
	case errors.As(err, &extra):
		p.Rule, p.Message = RuleSyntax, "there are more bytes after the document"
	case errors.As(err, &value):
		p.Message = "NaN, infinities and undefined have no counterpart in JSON"
	default:
		p.Rule, p.Message = RuleSyntax, "not CBOR: "+strings.TrimPrefix(err.Error(), "cbor: ")
	}
	return &p
}

// encodeCBOR encodes a decoded document. It refuses numbers that would lose
// digits.
func encodeCBOR(tree any) ([]byte, error) {
	v, err := cborValue(tree, "")
	if err != nil {
		return nil, err
	}
	return cborEncMode.Marshal(v)
}

func cborValue(v any, pointer string) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for name, item := range v {
			if m[name], err = cborValue(item, child(pointer, name)); err != nil {
				return nil, err
			}
		}
		return m, nil
	case []any:
		s := make([]any, len(v))
		for i, item := range v {
			if s[i], err = cborValue(item, child(pointer, i)); err != nil {
				return nil, err
			}
		}
		return s, nil
	case stdjson.Number:
		n, err := envelope.CBORNumber(string(v))
		if err != nil {
			return nil, fmt.Errorf("encode CBOR: %s: %s has more digits than a double or a 64-bit integer holds", pointer, clip.Text(string(v), 60))
		}
		return n, nil
	default:
		return v, nil
	}
}

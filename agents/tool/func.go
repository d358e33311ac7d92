package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/aeemesh/aeemesh/envelope"
)

// Func makes a tool from a typed function. Arguments are decoded into an In,
// unknown members are refused, also those that differ in case from the name in a field's
// tag, and the Out is encoded. An error of fn is the tool's error.
func Func[In, Out any](def Definition, fn func(ctx context.Context, in In) (Out, error)) Tool {
	return Raw(def, func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
		var in In
		if err := decode(args, &in); err != nil {
			return nil, &Error{Kind: ErrInvalidArguments, Tool: def.Name, Message: err.Error(), NotMade: true}
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		raw, err := envelope.EncodeJSON(out)
		if err != nil {
			return nil, &Error{Kind: ErrInvalidResult, Tool: def.Name, Message: "the result cannot be written as JSON", Err: err}
		}
		return raw, nil
	})
}

// Raw makes a tool from a function on JSON.
func Raw(def Definition, fn func(ctx context.Context, args json.RawMessage) (json.RawMessage, error)) Tool {
	return rawTool{def, fn}
}

type rawTool struct {
	def Definition
	fn  func(context.Context, json.RawMessage) (json.RawMessage, error)
}

func (t rawTool) Definition() Definition { return t.def }

func (t rawTool) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.fn(ctx, args)
}

// decode decodes one JSON value; further input is an error.
func decode(raw json.RawMessage, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) { // the standard text names Go types
			return fmt.Errorf("%s: a JSON %s does not fit", pathOf(typ.Field), typ.Value)
		}
		return errors.New(trimJSON(err.Error()))
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return exactNames(raw, reflect.TypeOf(v))
}

func pathOf(field string) string {
	if field == "" {
		return "arguments"
	}
	return field
}

func trimJSON(s string) string {
	if after, ok := bytes.CutPrefix([]byte(s), []byte("json: ")); ok {
		return string(after)
	}
	return s
}

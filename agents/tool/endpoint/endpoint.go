package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// Endpoint is the HTTP endpoint that a tool calls. It is safe for concurrent use.
type Endpoint struct {
	Tool   string // its name, for errors
	Method string
	Access outbound.Access
	Client *http.Client // of Access.Policy
}

// RepeatSafe reports whether the method is idempotent (RFC 9110, section 9.2.2).
func (e *Endpoint) RepeatSafe() bool {
	return e.Method != http.MethodPost && e.Method != http.MethodPatch
}

// Call makes one request from the arguments of a call; empty arguments mean {}. The error is a
// [*tool.Error], or the context's own if that ended the call.
func (e *Endpoint) Call(ctx context.Context, args json.RawMessage, request func(args map[string]json.RawMessage) (outbound.Request, error)) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r, err := e.request(args, request)
	if err != nil {
		return nil, &tool.Error{Kind: tool.ErrInvalidArguments, Tool: e.Tool, Message: err.Error(), NotMade: true}
	}
	r.Method, r.Key, r.Again = e.Method, tool.KeyFrom(ctx), e.RepeatSafe()
	if name, value := tool.TraceFrom(ctx); name != "" {
		if r.Header == nil {
			r.Header = make(http.Header)
		}
		r.Header.Set(name, value)
	}
	answer, err := e.Access.Call(ctx, e.Client, r)
	if err != nil {
		return nil, e.failure(err)
	}
	result, err := answer.JSON()
	if err != nil {
		return nil, e.failure(err)
	}
	return result, nil
}

func (e *Endpoint) request(raw json.RawMessage, request func(map[string]json.RawMessage) (outbound.Request, error)) (outbound.Request, error) {
	args := make(map[string]json.RawMessage)
	if raw = bytes.TrimSpace(raw); len(raw) > 0 {
		if err := json.Unmarshal(raw, &args); err != nil || args == nil {
			return outbound.Request{}, errors.New("want a JSON object")
		}
	}
	return request(args)
}

// failure converts the error of a call.
func (e *Endpoint) failure(err error) error {
	var f *outbound.Failure
	if !errors.As(err, &f) {
		return err // the context's own
	}
	return &tool.Error{Kind: Kind(f), Tool: e.Tool, Message: f.Message, NotMade: f.NotMade, Err: f.Err}
}

// Kind returns the kind of a failed call.
func Kind(f *outbound.Failure) tool.Kind {
	switch f.Reason {
	case outbound.ReasonRefused:
		return tool.ErrRefused
	case outbound.ReasonUnreachable, outbound.ReasonLimited:
		return tool.ErrUnavailable
	case outbound.ReasonTimeout:
		return tool.ErrTimeout
	case outbound.ReasonTooLarge:
		return tool.ErrInvalidResult
	}
	return tool.ErrFailed
}

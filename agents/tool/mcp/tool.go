package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope/pause"
)

// KeyMeta is the member of a call's _meta with the call's idempotency key,
// which is the same if the call is repeated after a crash of the worker. See
// [tool.KeyFrom].
const KeyMeta = "aeemesh/idempotency-key"

// TraceMeta is the member of a call's _meta with the W3C traceparent of the
// call's trace. See [tool.TraceFrom].
const TraceMeta = "traceparent"

// Tool is a tool of an MCP server.
type Tool struct {
	link       *link
	remote     string
	def        tool.Definition
	repeatable bool
}

// Definition returns the definition that the model sees.
func (t *Tool) Definition() tool.Definition { return t.def }

// RepeatSafe returns the server's annotations readOnlyHint or idempotentHint,
// if the server is in the operator's list: by MCP (Tools, Annotations) only
// annotations of trusted servers count.
func (t *Tool) RepeatSafe() bool { return t.repeatable }

// Call calls the tool, in the current session or a new one. A call that the
// server cannot have begun is repeated in a new session, and so is a call that
// was interrupted if it is safe to repeat.
func (t *Tool) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	result, again, err := t.once(ctx, args)
	made := reached(err)
	if again && ctx.Err() == nil {
		result, _, err = t.once(ctx, args)
	}
	if err == nil {
		return result, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	e := &tool.Error{Kind: tool.ErrFailed, Tool: t.def.Name, Message: "the call failed", Err: err}
	var down *unavailable
	var own *tool.Error
	switch {
	case errors.As(err, &own):
		e.Kind, e.Message, e.Err = own.Kind, own.Message, own.Err
	case errors.As(err, &down):
		e.Kind, e.Message, e.NotMade = tool.ErrUnavailable, down.words, !down.sent && !made
	}
	return nil, e
}

// reached reports whether the server may have got a call that ended with err.
func reached(err error) bool {
	var down *unavailable
	return !errors.As(err, &down) || down.sent
}

// once makes the call in one session, and reports whether it may be repeated.
func (t *Tool) once(ctx context.Context, args json.RawMessage) (result json.RawMessage, again bool, err error) {
	s, err := t.link.session(ctx)
	if err != nil {
		return nil, false, err
	}
	var seen note
	token, leave := t.link.enter(ctx, t.remote, &seen)
	defer leave(false) // no effect after an earlier leave
	params := &sdk.CallToolParams{Name: t.remote, Arguments: encode(args), Meta: sdk.Meta{}}
	params.SetProgressToken(token)
	if key := tool.KeyFrom(ctx); key != "" {
		params.Meta[KeyMeta] = key
	}
	if _, parent := tool.TraceFrom(ctx); parent != "" {
		params.Meta[TraceMeta] = parent
	}
	calling, done := context.WithCancel(context.WithValue(ctx, noteOfCall{}, &seen))
	defer done() // closes the rest of its stream
	answer, err := s.CallTool(calling, params)
	for try := 1; err == nil && busy(answer) && try < busyTries && pause.For(ctx, time.Duration(try)*busyPause); try++ {
		params.RequestState = answer.RequestState
		answer, err = s.CallTool(calling, params)
	}
	var rpc *jsonrpc.Error
	leave(err == nil || errors.As(err, &rpc) && !rejected(rpc))
	if err == nil {
		result, err = t.link.cfg.resultOf(answer, len(t.def.Output) > 0)
		return result, false, err
	}
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	// When the server answers one request with 404, the SDK ends all calls of the session with
	// ErrSessionMissing, even those that the server works on.
	lost := errors.Is(err, sdk.ErrSessionMissing)
	if lost || errors.Is(err, sdk.ErrConnectionClosed) {
		t.link.drop(s)
	}
	switch {
	case errors.Is(err, sdk.ErrConnectionClosed), lost && !seen.begun():
		return nil, true, &unavailable{words: "the session with the MCP server " + t.link.name + " has ended; try again", err: err}
	case errors.As(err, &rpc) && !rejected(rpc):
		return nil, false, t.link.classify(ctx, err, &seen, "")
	}
	err = t.link.classify(ctx, err, &seen, "the session with the MCP server "+t.link.name+" broke off during the call; whether it had an effect is unknown")
	return nil, t.repeatable && (rpc == nil || rpc.Message == errBrokenOff.Error()) && seen.status.Load() < http.StatusBadRequest, err
}

// A server that has too much to do asks for a call again (SEP-2322), at most busyTries times in all.
const (
	busyTries = 3
	busyPause = 500 * time.Millisecond // grows by itself with each
)

// busy reports whether a server asks for the call again, and for nothing else.
func busy(r *sdk.CallToolResult) bool { return r.NeedsInput() && len(r.InputRequests) == 0 }

// classify converts an error of the SDK to one with a text for the model. The
// text of a server's error is passed on like a result.
func (l *link) classify(ctx context.Context, err error, seen *note, words string) error {
	var rpc *jsonrpc.Error
	var op *net.OpError
	status, later := refused(int(seen.status.Load()))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &rpc) && !rejected(rpc):
		kind := tool.ErrFailed
		if rpc.Code == jsonrpc.CodeInvalidParams {
			kind = tool.ErrInvalidArguments
		}
		return &tool.Error{Kind: kind, Message: l.cfg.shortened("the MCP server refuses the call: "+rpc.Message, maxErrorText), Err: err}
	case errors.Is(err, errTooLarge), rpc != nil && rpc.Message == errTooLarge.Error():
		return &tool.Error{Kind: tool.ErrInvalidResult, Message: "the answer of the MCP server is too large", Err: err}
	case errors.As(err, &op) && op.Op == "dial":
		return &unavailable{words: "the MCP server " + l.name + " cannot be reached now; try again later", err: plain(err), sent: seen.status.Load() != 0}
	case status != "" && later:
		return &unavailable{words: status + "; try again later", err: err, sent: true}
	case status != "":
		return &tool.Error{Kind: tool.ErrFailed, Message: status, Err: err}
	}
	return &tool.Error{Kind: tool.ErrFailed, Message: words, Err: err}
}

// rejected reports whether an error does not come from the server: the SDK
// converts HTTP failures to responses with this code.
func rejected(e *jsonrpc.Error) bool { return e.Code == codeRejected }

const codeRejected = -32005

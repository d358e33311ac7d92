package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
)

func TestErrorIsItsKindAndHidesItsCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("dial tcp 10.0.0.7:443: Bearer sk-secret")
	var err error = fmt.Errorf("route primary: %w", &model.Error{
		Kind: model.ErrRateLimited, Message: "slow down", Status: 429, RetryAfter: 3 * time.Second, Err: cause})
	for _, k := range model.Kinds() {
		if got, want := errors.Is(err, k), k == model.ErrRateLimited; got != want {
			t.Errorf("errors.Is(err, %q) = %v, want %v", k, got, want)
		}
	}
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
	var e *model.Error
	if !errors.As(err, &e) || e.RetryAfter != 3*time.Second {
		t.Errorf("errors.As gives %+v", e)
	}
	const want = "route primary: model rate limited (HTTP 429): slow down (retry after 3s)"
	if err.Error() != want {
		t.Errorf("text\n got %s\nwant %s", err, want)
	}
}

func TestErrorfKeepsTheCause(t *testing.T) {
	t.Parallel()
	err := model.Errorf(model.ErrUnavailable, "read stream: %w", io.ErrUnexpectedEOF)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("%v lost its cause or its kind", err)
	}
	two := model.Errorf(model.ErrUnavailable, "%w, then %w", io.EOF, io.ErrClosedPipe)
	if !errors.Is(two, io.EOF) || !errors.Is(two, io.ErrClosedPipe) {
		t.Errorf("%v lost one of its causes", two)
	}
	if e := model.Errorf(model.ErrAuth, "no key"); e.Err != nil {
		t.Errorf("cause from nowhere: %v", e.Err)
	}
}

func TestAKeyThatCannotBeReadNowIsNoWrongKey(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	now := model.Errorf(model.ErrUnavailable, "the vault does not answer")
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want string
	}{
		"a plain error":   {t.Context(), errors.New("it is not set"), "model refused the credential: resolve the key: it is not set"},
		"one of the port": {t.Context(), now, "model unavailable: the vault does not answer"},
		"wrapped":         {t.Context(), fmt.Errorf("read it: %w", now), "read it: model unavailable: the vault does not answer"},
		"a context's end": {ended, now, "context canceled"},
	} {
		key, err := model.ResolveKey(c.ctx, func(context.Context) (string, error) { return "k", c.err })
		if key != "" || err == nil || err.Error() != c.want || c.ctx.Err() == nil && !errors.Is(err, c.err) {
			t.Errorf("%s: key %q, error %v, want %s", name, key, err, c.want)
		}
	}
}

func TestOnlyUnavailableAndRateLimitedAreRetryable(t *testing.T) {
	t.Parallel()
	var got []model.Kind
	for _, k := range model.Kinds() {
		if k.Retryable() {
			got = append(got, k)
		}
	}
	if want := "[model unavailable model rate limited]"; fmt.Sprint(got) != want {
		t.Errorf("retryable: %v, want %s", got, want)
	}
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestArgumentsAreAlwaysJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" null ":         `{}`, // of a tool without parameters
		``:               `{}`,
		" \n":            `{}`,
		`{"a": 1}`:       `{"a": 1}`,
		` {"a":1e400} `:  `{"a":1e400}`,
		`{"a":`:          `"{\"a\":"`,
		`{"a":1,"a":2}`:  `"{\"a\":1,\"a\":2}"`,
		`{"a":"\ud83d"}`: `"{\"a\":\"\\ud83d\"}"`,
		`rm -rf /`:       `"rm -rf /"`,
		"\xff":           `"\ufffd"`,
		`{"a":1}{"b":2}`: `"{\"a\":1}{\"b\":2}"`,
		nested(60):       nested(60),
		nested(61):       `"` + nested(61) + `"`,
	} {
		got := model.Arguments(text)
		if string(got) != want || !json.Valid(got) {
			t.Errorf("Arguments(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestMessageJSONUsesAgentStateNames(t *testing.T) {
	t.Parallel()
	call := model.ToolCall{ID: "c1", Name: "look", Arguments: json.RawMessage(`{"n":1}`)}
	conversation := []model.Message{
		model.Assistant("", call),
		model.ToolResult(call, json.RawMessage(`{"ok":true}`)),
		model.ToolFailure(call, "no such file"),
	}
	got, err := json.Marshal(conversation)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"role":"assistant","content":"","tool_calls":[{"id":"c1","name":"look","arguments":{"n":1}}]},` +
		`{"role":"tool","content":"{\"ok\":true}","tool_call_id":"c1","tool_name":"look"},` +
		`{"role":"tool","content":"no such file","tool_call_id":"c1","tool_name":"look","is_error":true}]`
	if string(got) != want {
		t.Errorf("json\n got %s\nwant %s", got, want)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	t.Parallel()
	ok := func() *model.Request { return &model.Request{Messages: []model.Message{model.User("hi")}} }
	call := func(id, name, args string) model.ToolCall {
		return model.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(args)}
	}
	cases := []struct {
		want string
		mend func(*model.Request)
	}{
		{"", func(*model.Request) {}},
		{"", func(r *model.Request) { r.Params.Extended = json.RawMessage(` {"x":{}} `) }},
		{"", func(r *model.Request) {
			r.Messages = append(r.Messages, model.Assistant("", call("a", "f", "{}"), call("b", "f", "{}")))
		}},
		{"messages: at least one", func(r *model.Request) { r.Messages = nil }},
		{"messages[0].role", func(r *model.Request) { r.Messages[0].Role = "robot" }},
		{"messages[0].tool_calls: only", func(r *model.Request) { r.Messages[0].ToolCalls = []model.ToolCall{call("a", "f", "{}")} }},
		{"messages[1].tool_call_id", func(r *model.Request) { r.Messages = append(r.Messages, model.Message{Role: model.RoleTool}) }},
		{"messages[1].tool_calls[0]: id", func(r *model.Request) { r.Messages = append(r.Messages, model.Assistant("", call("", "f", "{}"))) }},
		{"messages[1].tool_calls[1].id", func(r *model.Request) {
			r.Messages = append(r.Messages, model.Assistant("", call("a", "f", "{}"), call("a", "f", "{}")))
		}},
		{"messages[1].tool_calls[0].arguments", func(r *model.Request) { r.Messages = append(r.Messages, model.Assistant("", call("a", "f", "{"))) }},
		{"tools[0].name: must", func(r *model.Request) { r.Tools = []model.ToolDef{{}} }},
		{"tools[1].name: \"f\"", func(r *model.Request) { r.Tools = []model.ToolDef{{Name: "f"}, {Name: "f"}} }},
		{"tools[0].parameters", func(r *model.Request) { r.Tools = []model.ToolDef{{Name: "f", Parameters: json.RawMessage(`[]`)}} }},
		{"format.type", func(r *model.Request) { r.Format.Type = "xml" }},
		{"format.schema", func(r *model.Request) { r.Format.Type = model.FormatJSONSchema }},
		{"params.extended", func(r *model.Request) { r.Params.Extended = json.RawMessage(`[1]`) }},
		{"params.max_tokens", func(r *model.Request) { r.Params.MaxTokens = -1 }},
	}
	for _, c := range cases {
		req := ok()
		c.mend(req)
		err := req.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("valid request refused: %v", err)
		case c.want != "" && (!errors.Is(err, model.ErrBadRequest) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("error %v, want a bad request that names %s", err, c.want)
		}
	}
	var none *model.Request
	if !errors.Is(none.Validate(), model.ErrBadRequest) {
		t.Error("a nil request passed")
	}
}

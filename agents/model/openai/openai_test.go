package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/model/openai"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	modeltest.Run(t, func(t *testing.T, turns ...modeltest.Turn) model.Model {
		return newModel(t, double(t, turns...).URL)
	})
}

// canned serves one answer and records the requests.
type canned struct {
	status  int
	header  map[string]string
	body    string
	mu      sync.Mutex
	bodies  []string
	headers []http.Header
}

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	c.bodies = append(c.bodies, string(body))
	c.headers = append(c.headers, r.Header.Clone())
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	for k, v := range c.header {
		w.Header().Set(k, v)
	}
	if c.status != 0 {
		w.WriteHeader(c.status)
	}
	io.WriteString(w, c.body)
}

const fine = `{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"model":"m"}`

var hi = &model.Request{Model: "m", Messages: []model.Message{model.User("hi")}}

func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	f := func(v float64) *float64 { return &v }
	seed := int64(9007199254740993)
	call := model.ToolCall{ID: "c1", Name: "look", Arguments: json.RawMessage(`{"n": 1.50}`)}
	req := &model.Request{
		Model:    "llama3.1",
		Messages: []model.Message{model.System("be <brief> & kind"), model.User("hi"), model.Assistant("", call), model.ToolResult(call, json.RawMessage(`{"ok":true}`)), model.Assistant(""), model.User("go on")},
		Tools:    []model.ToolDef{{Name: "look", Description: "looks", Parameters: json.RawMessage(`{"type":"object","z":1.50,"a":9007199254740993}`)}, {Name: "bare"}},
		Format:   model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object","z":1,"a":2}`), Strict: true},
		Params: model.Params{Temperature: f(0), MaxTokens: 7, TopP: f(0.25), FrequencyPenalty: f(-1.5), PresencePenalty: f(2), Stop: []string{"END", "."}, Seed: &seed,
			Extended: json.RawMessage(`{"a.b*|#@{}": {"y": 1.50, "x": "<&>"}, "top_k": 9007199254740993, "temperature": 0.70, "10": null}`)},
	}
	const want = `{"messages":[{"content":"be <brief> & kind","role":"system"},{"content":"hi","role":"user"},` +
		`{"tool_calls":[{"id":"c1","function":{"arguments":"{\"n\": 1.50}","name":"look"},"type":"function"}],"role":"assistant"},` +
		`{"content":"{\"ok\":true}","tool_call_id":"c1","role":"tool"},{"content":"","role":"assistant"},{"content":"go on","role":"user"}],` +
		`"model":"llama3.1","frequency_penalty":-1.5,"max_tokens":7,"presence_penalty":2,"seed":9007199254740993,"temperature":0.70,"top_p":0.25,` +
		`"response_format":{"json_schema":{"name":"output","strict":true,"schema":{"type":"object","z":1,"a":2}},"type":"json_schema"},"stop":["END","."],` +
		`"tools":[{"function":{"name":"look","description":"looks","parameters":{"type":"object","z":1.50,"a":9007199254740993}},"type":"function"},{"function":{"name":"bare"},"type":"function"}],` +
		`"a.b*|#@{}":{"y": 1.50, "x": "<&>"},"top_k":9007199254740993,"10":null}`
	c := &canned{body: fine}
	if _, err := newModel(t, modeltest.Serve(t, c)).Generate(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	got := c.bodies[0]
	if !modeltest.SameJSON(t, got, want) {
		t.Errorf("body\n got %s\nwant %s", got, want)
	}
	if !strings.Contains(got, `{"y": 1.50, "x": "<&>"}`) {
		t.Errorf("extended parameters did not travel byte for byte: %s", got)
	}
	if h := c.headers[0]; h.Get("Authorization") != "Bearer "+testKey || h.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", h)
	}

	c = &canned{body: fine}
	plain := newModel(t, modeltest.Serve(t, c), func(cfg *openai.Config) { cfg.Key = nil })
	if _, err := plain.Generate(t.Context(), hi, func(model.Delta) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got, want := c.bodies[0], `{"messages":[{"content":"hi","role":"user"}],"model":"m","stream_options":{"include_usage":true},"stream":true}`; !modeltest.SameJSON(t, got, want) {
		t.Errorf("body\n got %s\nwant %s", got, want)
	}
	if auth, ok := c.headers[0]["Authorization"]; ok {
		t.Errorf("without a key, Authorization is %q", auth)
	}
}

// rewrite sends requests for any host to one server.
type rewrite struct{ to string }

func (r rewrite) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host = "http", strings.TrimPrefix(r.to, "http://")
	return http.DefaultTransport.RoundTrip(req)
}

func TestMaxTokensHasItsNewNameAtOpenAI(t *testing.T) {
	t.Parallel()
	c := &canned{body: fine}
	url := modeltest.Serve(t, c)
	m, err := openai.New(openai.Config{HTTPClient: &http.Client{Transport: rewrite{url}}})
	if err != nil {
		t.Fatal(err)
	}
	req := *hi
	req.Params.MaxTokens = 5
	if _, err := m.Generate(t.Context(), &req, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(c.bodies[0], `"max_completion_tokens":5`) || strings.Contains(c.bodies[0], `"max_tokens"`) {
		t.Errorf("body %s", c.bodies[0])
	}
}

// streamOf joins events into a body.
func streamOf(events ...string) string { return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n" }

const opening = `{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"model":"m"}`

func say(text string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, text)
}

func finish(reason string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, reason)
}

func callDelta(index, id, name, args string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"tool_calls":[{%s"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}]}}]}`, index, id, name, args)
}

func TestServersDiffer(t *testing.T) {
	t.Parallel()
	ok := func(content string) *model.Response {
		return &model.Response{Message: model.Assistant(content), Finish: model.FinishStop, Model: "m"}
	}
	calls := func(f model.Finish, calls ...model.ToolCall) *model.Response {
		return &model.Response{Message: model.Assistant("", calls...), Finish: f, Model: "m"}
	}
	call := func(id, name, args string) model.ToolCall {
		return model.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(args)}
	}
	const sse, js = "text/event-stream", "application/json"
	for name, c := range map[string]struct {
		media, body string
		want        *model.Response
	}{
		"JSON where a stream was asked for":  {js, fine, ok("ok")},
		"a stream without DONE":              {sse, streamOf(opening, say("ok"), finish("stop")), ok("ok")},
		"DONE without a finish reason":       {sse, streamOf(opening, say("ok"), `[DONE]`), ok("ok")},
		"a call, DONE and no finish reason":  {sse, streamOf(callDelta(`"index":0,`, "a", "one", `{"x":1}`), `[DONE]`), calls(model.FinishToolCalls, call("a", "one", `{"x":1}`))},
		"error null in chunks":               {sse, streamOf(opening, `{"error":null,"choices":[{"index":0,"delta":{"content":"ok"}}]}`, finish("stop"), "[DONE]"), ok("ok")},
		"carriage returns and comments":      {sse, strings.ReplaceAll(": hi\n\n"+streamOf(opening, say("ok"), finish("stop"), "[DONE]"), "\n", "\r\n"), ok("ok")},
		"an event in several data lines":     {sse, "data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\n", ok("ok")},
		"empty events":                       {sse, streamOf(opening, "", say("ok"), " ", finish("stop")), ok("ok")},
		"a wrong media type":                 {"text/plain", streamOf(opening, say("ok"), finish("stop")), ok("ok")},
		"other choices are not ours":         {sse, streamOf(opening, `{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"length"}]}`, say("ok"), finish("stop")), ok("ok")},
		"an unknown finish reason":           {sse, streamOf(say("ok"), finish("end_turn")), ok("ok")},
		"cut at the limit":                   {sse, streamOf(say("ok"), finish("length")), &model.Response{Message: model.Assistant("ok"), Finish: model.FinishLength, Model: "m"}},
		"filtered":                           {sse, streamOf(say("ok"), finish("content_filter")), &model.Response{Message: model.Assistant("ok"), Finish: model.FinishContentFilter, Model: "m"}},
		"refused":                            {sse, streamOf(`{"choices":[{"index":0,"delta":{"refusal":"no "}}]}`, `{"choices":[{"index":0,"delta":{"refusal":"way"}}]}`, finish("stop")), &model.Response{Message: model.Assistant("no way"), Finish: model.FinishContentFilter, Model: "m"}},
		"usage in every chunk":               {sse, streamOf(`{"usage":{"prompt_tokens":1,"completion_tokens":1},"choices":[]}`, say("ok"), finish("stop"), `{"usage":{"prompt_tokens":3,"completion_tokens":4},"choices":[]}`, "[DONE]"), &model.Response{Message: model.Assistant("ok"), Finish: model.FinishStop, Model: "m", Usage: model.Usage{InputTokens: 3, OutputTokens: 4}}},
		"calls without index":                {sse, streamOf(callDelta("", "a", "one", `{"x":1}`), callDelta("", "b", "two", `{}`), finish("tool_calls")), calls(model.FinishToolCalls, call("a", "one", `{"x":1}`), call("b", "two", `{}`))},
		"calls without index and id":         {sse, streamOf(`{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"one","arguments":"{\"x\":1}"}},{"index":null,"function":{"name":"two","arguments":"{"}}]}}]}`, callDelta("", "", "", `}`), callDelta("", "", "two", `{}`), finish("tool_calls")), calls(model.FinishToolCalls, call("call_1", "one", `{"x":1}`), call("call_2", "two", `{}`), call("call_3", "two", `{}`))},
		"a name without index in pieces":     {sse, streamOf(callDelta("", "", "", ``), callDelta("", "", "one", `{"x"`), callDelta("", "", "", `:1}`), finish("tool_calls")), calls(model.FinishToolCalls, call("call_1", "one", `{"x":1}`))},
		"an id in the first piece only":      {sse, streamOf(callDelta("", "a", "one", `{"x"`), callDelta("", "", "one", `:1}`), finish("tool_calls")), calls(model.FinishToolCalls, call("a", "one", `{"x":1}`))},
		"a name with index in every piece":   {sse, streamOf(callDelta(`"index":0,`, "", "one", `{"x"`), callDelta(`"index":0,`, "", "one", `:1}`), finish("tool_calls")), calls(model.FinishToolCalls, call("call_1", "one", `{"x":1}`))},
		"calls without id":                   {sse, streamOf(callDelta(`"index":0,`, "", "one", `{}`), callDelta(`"index":1,`, "", "two", `{}`), finish("tool_calls")), calls(model.FinishToolCalls, call("call_1", "one", `{}`), call("call_2", "two", `{}`))},
		"calls with one id":                  {sse, streamOf(callDelta(`"index":0,`, "a", "one", `{}`), callDelta(`"index":1,`, "a", "two", `{}`), finish("tool_calls")), calls(model.FinishToolCalls, call("a", "one", `{}`), call("call_2", "two", `{}`))},
		"an id and name in every piece":      {sse, streamOf(callDelta(`"index":0,`, "a", "one", `{"x"`), callDelta(`"index":0,`, "a", "one", `:1}`), finish("tool_calls")), calls(model.FinishToolCalls, call("a", "one", `{"x":1}`))},
		"another id in every piece":          {sse, streamOf(callDelta(`"index":0,`, "a", "one", `{"x"`), callDelta(`"index":0,`, "b", "", `:`), callDelta(`"index":0,`, "c", "", `1}`), callDelta(`"index":1,`, "d", "two", `{`), callDelta(`"index":1,`, "e", "", `}`), finish("tool_calls")), calls(model.FinishToolCalls, call("a", "one", `{"x":1}`), call("d", "two", `{}`))},
		"two calls with one index":           {sse, streamOf(callDelta(`"index":0,`, "a", "one", `{"x":1}`), callDelta(`"index":0,`, "b", "one", `{`), callDelta(`"index":0,`, "", "", `}`), finish("tool_calls")), calls(model.FinishToolCalls, call("a", "one", `{"x":1}`), call("b", "one", `{}`))},
		"calls without index in turns":       {sse, streamOf(callDelta("", "a", "one", `{"x"`), callDelta("", "b", "two", `{`), callDelta("", "a", "", `:1}`), callDelta("", "b", "", `}`), finish("tool_calls")), calls(model.FinishToolCalls, call("a", "one", `{"x":1}`), call("b", "two", `{}`))},
		"calls that finish with stop":        {sse, streamOf(callDelta(`"index":0,`, "a", "one", ``), finish("stop")), calls(model.FinishToolCalls, call("a", "one", `{}`))},
		"arguments that are no JSON":         {sse, streamOf(callDelta(`"index":0,`, "a", "one", `{"x":`), finish("length")), calls(model.FinishLength, call("a", "one", `"{\"x\":"`))},
		"calls in JSON":                      {js, `{"model":"m","choices":[{"message":{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"one","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"two","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`, calls(model.FinishToolCalls, call("a", "one", `{"x":1}`), call("b", "two", `{}`))},
		"arguments that are an object":       {js, `{"model":"m","choices":[{"message":{"content":null,"tool_calls":[{"id":7,"function":{"name":"one","arguments":{"x":1}}}]},"finish_reason":"stop"}]}`, calls(model.FinishToolCalls, call("7", "one", `{"x":1}`))},
		"numbers in strings":                 {sse, streamOf(`{"choices":[{"index":"0","delta":{"content":"ok"}}],"usage":"none"}`, finish("stop"), `{"model":"m","choices":null,"usage":{"prompt_tokens":"3","completion_tokens":4.0}}`), &model.Response{Message: model.Assistant("ok"), Finish: model.FinishStop, Model: "m", Usage: model.Usage{InputTokens: 3, OutputTokens: 4}}},
		"members of other types":             {sse, streamOf(`{"choices":{"no":1},"model":"m"}`, `{"choices":[{"index":0,"delta":[1]},{"delta":{"content":"ok","tool_calls":"none"}}]}`, finish("stop")), ok("ok")},
		"usage and model left out":           {js, `{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}`, ok("ok")},
		"whole calls in the finishing chunk": {sse, streamOf(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"one","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`), calls(model.FinishToolCalls, call("a", "one", `{}`))},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, modeltest.Serve(t, &canned{header: map[string]string{"Content-Type": c.media}, body: c.body}))
			var text strings.Builder
			got, err := m.Generate(t.Context(), hi, func(d model.Delta) error {
				text.WriteString(d.Text)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("response\n got %+v\nwant %+v", got, c.want)
			}
			if text.String() != c.want.Message.Content {
				t.Errorf("streamed %q, want %q", text.String(), c.want.Message.Content)
			}
		})
	}
}

func TestAnswersThatBreak(t *testing.T) {
	t.Parallel()
	const sse, js = "text/event-stream", "application/json"
	for name, c := range map[string]struct {
		media, body string
		kind        model.Kind
		text        string
	}{
		"a stream that just ends":        {sse, streamOf(opening, say("ok")), model.ErrUnavailable, "broke off"},
		"an empty stream":                {sse, "", model.ErrUnavailable, "broke off"},
		"DONE and no answer":             {sse, streamOf(opening, `[DONE]`), model.ErrUnavailable, "ended before the answer was complete"},
		"DONE within a call":             {sse, streamOf(say("ok"), callDelta(`"index":0,`, "a", "one", `{}`), callDelta(`"index":1,`, "b", "two", ``), `[DONE]`), model.ErrUnavailable, "ended before the answer was complete"},
		"DONE within arguments":          {sse, streamOf(callDelta(`"index":0,`, "a", "one", `{"x":`), `[DONE]`), model.ErrUnavailable, "ended before the answer was complete"},
		"a chunk cut in half":            {sse, streamOf(opening) + `data: {"choi`, model.ErrUnavailable, "broke off"},
		"a chunk that is no JSON":        {sse, streamOf(opening, "<html>"), model.ErrUnavailable, "not the JSON of a chunk"},
		"an error event":                 {sse, streamOf(opening, `{"error":{"message":"overloaded","type":"server_error"}}`), model.ErrUnavailable, "overloaded; server_error"},
		"an error event with its status": {sse, streamOf(`{"error":{"message":"slow down","code":429}}`), model.ErrRateLimited, "slow down"},
		"an error event in words":        {sse, streamOf(`{"error":"out of memory"}`), model.ErrUnavailable, "out of memory"},
		"a long conversation":            {sse, streamOf(`{"error":{"message":"too long","code":"context_length_exceeded"}}`), model.ErrContextTooLong, "too long"},
		"a malformed call":               {sse, streamOf(opening, `{"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed","status_code":400}}`), model.ErrUnavailable, "tool_use_failed"},
		"an error with status 200":       {js, `{"error":{"message":"bad model","code":400}}`, model.ErrBadRequest, "bad model"},
		"no choices":                     {js, `{"choices":[]}`, model.ErrUnavailable, "no choices"},
		"no JSON":                        {js, `<html>`, model.ErrUnavailable, "not the JSON of a chat completion"},
		"a page of another server":       {"text/html; charset=utf-8", "<!doctype html>\n<p>data: none</p>", model.ErrUnavailable, "text/html, neither JSON nor a stream of events: does base_url name the API?"},
		"half of the JSON":               {js, fine[:40], model.ErrUnavailable, "not the JSON"},
		"a call without a name":          {sse, streamOf(callDelta(`"index":0,`, "a", "", `{}`), finish("tool_calls")), model.ErrUnavailable, "without a name"},
		"too many calls":                 {sse, streamOf(strings.Repeat(callDelta(`"index":0,`, "a", "x", `{}`)+"\n\ndata: "+callDelta(`"index":0,`, "b", "x", `{}`)+"\n\ndata: ", 200) + finish("stop")), model.ErrUnavailable, "more than 256 tool calls"},
		"too much":                       {js, strings.Repeat(" ", 70_000) + fine, model.ErrUnavailable, "exceeds the bound of 65536 bytes"},
		"a stream without end":           {sse, streamOf(strings.Repeat(say("x")+"\n\ndata: ", 5000)), model.ErrUnavailable, "exceeds the bound of 65536 bytes"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, modeltest.Serve(t, &canned{header: map[string]string{"Content-Type": c.media}, body: c.body}), func(cfg *openai.Config) { cfg.MaxResponse = 65536 })
			res, err := m.Generate(t.Context(), hi, func(model.Delta) error { return nil })
			if res != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("response %+v, error %v, want %v that says %q", res, err, c.kind, c.text)
			}
		})
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	obj := func(code, typ, message string) string {
		b, _ := json.Marshal(map[string]any{"error": map[string]string{"code": code, "type": typ, "message": message}})
		return string(b)
	}
	for _, c := range []struct {
		status int
		header map[string]string
		body   string
		want   model.Error
	}{
		{400, nil, obj("", "invalid_request_error", "bad temperature"), model.Error{Kind: model.ErrBadRequest, Message: "bad temperature; invalid_request_error"}},
		{400, nil, obj("context_length_exceeded", "", "long"), model.Error{Kind: model.ErrContextTooLong, Message: "long; context_length_exceeded"}},
		{400, nil, obj("", "exceed_context_size_error", "long"), model.Error{Kind: model.ErrContextTooLong, Message: "long; exceed_context_size_error"}},
		{400, nil, obj("", "", "This model's maximum context length is 8192 tokens."), model.Error{Kind: model.ErrContextTooLong, Message: "This model's maximum context length is 8192 tokens."}},
		{400, nil, obj("tool_use_failed", "invalid_request_error", "Failed to call a function."), model.Error{Kind: model.ErrUnavailable, Message: "Failed to call a function.; tool_use_failed"}},
		{400, nil, obj("json_validate_failed", "invalid_request_error", "Failed to generate JSON."), model.Error{Kind: model.ErrUnavailable, Message: "Failed to generate JSON.; json_validate_failed"}},
		{413, nil, ``, model.Error{Kind: model.ErrContextTooLong}},
		{401, nil, obj("invalid_api_key", "", "Incorrect API key: "+testKey), model.Error{Kind: model.ErrAuth, Message: "invalid_api_key"}},
		{403, nil, `forbidden`, model.Error{Kind: model.ErrAuth}},
		{404, nil, `{"error":"model \"m\" not found, try pulling it first"}`, model.Error{Kind: model.ErrBadRequest, Message: `model "m" not found, try pulling it first`}},
		{422, nil, `{"detail":"field required"}`, model.Error{Kind: model.ErrBadRequest, Message: "field required"}},
		{429, map[string]string{"Retry-After": "2"}, obj("rate_limit_exceeded", "", "slow"), model.Error{Kind: model.ErrRateLimited, Message: "slow; rate_limit_exceeded", RetryAfter: 2 * time.Second}},
		{429, map[string]string{"Retry-After": "2", "Retry-After-Ms": "150"}, ``, model.Error{Kind: model.ErrRateLimited, RetryAfter: 150 * time.Millisecond}},
		{429, map[string]string{"Retry-After": "1e99"}, ``, model.Error{Kind: model.ErrRateLimited, RetryAfter: 24 * time.Hour}},
		{429, map[string]string{"Retry-After": "soon"}, ``, model.Error{Kind: model.ErrRateLimited}},
		{429, map[string]string{"Retry-After": "Mon, 02 Jan 2006 15:04:05 GMT"}, obj("insufficient_quota", "", "pay"), model.Error{Kind: model.ErrRateLimited, Message: "pay; insufficient_quota"}},
		{500, nil, `<html>oops</html>`, model.Error{Kind: model.ErrUnavailable}},
		{503, map[string]string{"Retry-After": "3"}, `{"message":"loading"}`, model.Error{Kind: model.ErrUnavailable, Message: "loading", RetryAfter: 3 * time.Second}},
		{529, nil, obj("", "overloaded_error", "busy\n\x1b[31m now"), model.Error{Kind: model.ErrUnavailable, Message: "busy [31m now; overloaded_error"}},
		{400, nil, obj("", "", "we got Bearer abcdef and "+testKey+" and sk-other123456 "+strings.Repeat("x", 400)), model.Error{Kind: model.ErrBadRequest, Message: "we got [key] and [key] and [key] " + strings.Repeat("x", 300-33) + "…"}},
	} {
		m := newModel(t, modeltest.Serve(t, &canned{status: c.status, header: c.header, body: c.body}))
		for _, onDelta := range []func(model.Delta) error{nil, func(model.Delta) error { return nil }} {
			_, err := m.Generate(t.Context(), hi, onDelta)
			c.want.Status = c.status
			var got *model.Error
			if !errors.As(err, &got) || !reflect.DeepEqual(*got, c.want) {
				t.Errorf("%d %s\n got %+v\nwant %+v", c.status, c.body, got, c.want)
			}
			if hasKey(fmt.Sprintf("%v %+v", err, got)) {
				t.Errorf("the error tells the key: %+v", got)
			}
		}
	}
}

func TestServersKeysAndAddresses(t *testing.T) {
	t.Parallel()
	modeltest.Frame{
		New: func(t *testing.T, url string, timeout time.Duration, key func(context.Context) (string, error)) model.Model {
			return newModel(t, url, func(c *openai.Config) {
				if c.RequestTimeout = timeout; key != nil {
					c.Key = key
				}
			})
		},
		Double: double, Fine: fine, Path: "/chat/completions", HasKey: hasKey,
		Sent: func(h http.Header) string { return strings.TrimPrefix(h.Get("Authorization"), "Bearer ") },
		Refused: func(url string) error {
			_, err := openai.New(openai.Config{BaseURL: url, KeyHeader: "a b", MaxResponse: -1})
			return err
		},
		Rest: []string{"key header", "negative"},
	}.Run(t)
}

func TestNothingComesFromTheEnvironment(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"} {
		t.Setenv(name, "from-the-environment")
	}
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Leak: from-the-environment")
	c := &canned{body: fine}
	m := newModel(t, modeltest.Serve(t, c), func(cfg *openai.Config) { cfg.Key = nil })
	if _, err := m.Generate(t.Context(), hi, nil); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.headers); strings.Contains(got, "environment") {
		t.Errorf("headers %s", got)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(true, streamOf(opening, say("a b"), callDelta(`"index":0,`, "a", "one", `{"x":1}`), finish("stop"), "[DONE]"))
	f.Add(true, streamOf(opening, `{"error":{"message":"x","code":429}}`))
	f.Add(true, ": c\r\nevent: x\r\ndata: {}\r\ndata: {}\r\n\r\ndata:[DONE]\n\n")
	f.Add(false, fine)
	f.Add(false, `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{"}}]}}]}`)
	f.Fuzz(func(t *testing.T, stream bool, text string) {
		media := "application/json"
		if stream {
			media = "text/event-stream"
		}
		m, err := openai.New(openai.Config{BaseURL: "http://h/v1", HTTPClient: &http.Client{Transport: modeltest.Body{Media: media, Text: text}}})
		if err != nil {
			t.Fatal(err)
		}
		modeltest.CheckAnswer(t, m, true, "build the request")
	})
}

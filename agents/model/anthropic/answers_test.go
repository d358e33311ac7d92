package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/anthropic"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	usage := model.Usage{InputTokens: 60, OutputTokens: 5, CachedInputTokens: 30, CacheWriteTokens: 20}
	says := func(text string, finish model.Finish, calls ...model.ToolCall) *model.Response {
		return &model.Response{Message: model.Assistant(text, calls...), Finish: finish, Model: "m-1", Provider: "anthropic", Usage: usage}
	}
	call := func(id, args string) model.ToolCall {
		return model.ToolCall{ID: id, Name: "look", Arguments: json.RawMessage(args)}
	}
	const textBlock = `{"type":"text","text":""}`
	use := func(id string) string { return fmt.Sprintf(`{"type":"tool_use","id":%q,"name":"look","input":{}}`, id) }
	input := func(i int, part string) string {
		return delta(i, fmt.Sprintf(`{"type":"input_json_delta","partial_json":%q}`, part))
	}
	whole := func(content, stop string) *canned {
		return always(`{"type":"message","role":"assistant","model":"m-1","content":` + content + `,"stop_reason":"` + stop + `","usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":5}}`)
	}
	unnamed := says("ok", model.FinishStop)
	unnamed.Model, unnamed.Usage = "m", model.Usage{}
	counted := says("ok", model.FinishStop)
	counted.Usage = model.Usage{InputTokens: 6, OutputTokens: 9, CachedInputTokens: 1, CacheWriteTokens: 2}
	for name, c := range map[string]struct {
		server *canned
		want   *model.Response
	}{
		"a stream":                        {stream(start, `{"type":"ping"}`, begin(0, textBlock), say(0, "o"), say(0, "k"), `{"type":"content_block_stop","index":0}`, stop("end_turn"), end), says("ok", model.FinishStop)},
		"a stream without its last event": {stream(start, begin(0, textBlock), say(0, "ok"), stop("end_turn")), says("ok", model.FinishStop)},
		"events that are yet to come":     {stream(start, `{"type":"message_mood","mood":"fine"}`, begin(0, textBlock), delta(0, `{"type":"glow_delta"}`), say(0, "ok"), stop("end_turn"), end), says("ok", model.FinishStop)},
		"several texts":                   {stream(start, begin(0, `{"type":"text","text":"a "}`), say(0, "b "), begin(1, textBlock), say(1, "c"), stop("end_turn"), end), says("a b c", model.FinishStop)},
		"all counts at the end":           {stream(start, begin(0, textBlock), say(0, "ok"), `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":3,"cache_creation_input_tokens":2,"cache_read_input_tokens":1,"output_tokens":9}}`, end), counted},
		"a stop sequence":                 {stream(start, begin(0, textBlock), say(0, "ok"), stop("stop_sequence"), end), says("ok", model.FinishStop)},
		"cut at the limit":                {stream(start, begin(0, textBlock), say(0, "ok"), stop("max_tokens"), end), says("ok", model.FinishLength)},
		"cut at the window":               {stream(start, begin(0, textBlock), say(0, "ok"), stop("model_context_window_exceeded"), end), says("ok", model.FinishLength)},
		"refused":                         {stream(start, begin(0, textBlock), say(0, "no"), stop("refusal"), end), says("no", model.FinishContentFilter)},
		"a reason that is yet to come":    {stream(start, begin(0, textBlock), say(0, "ok"), stop("tired"), end), says("ok", model.FinishStop)},
		"a call":                          {stream(start, begin(0, textBlock), say(0, "look"), begin(1, use("a")), input(1, `{"x"`), input(1, `:1}`), stop("tool_use"), end), says("look", model.FinishToolCalls, call("a", `{"x":1}`))},
		"calls that are told by turns":    {stream(start, begin(0, use("a")), begin(1, use("b")), input(1, `{"y":`), input(0, `{"x":`), input(1, `2}`), input(0, `1}`), stop("tool_use"), end), says("", model.FinishToolCalls, call("a", `{"x":1}`), call("b", `{"y":2}`))},
		"a call without arguments":        {stream(start, begin(0, use("a")), input(0, ``), stop("tool_use"), end), says("", model.FinishToolCalls, call("a", `{}`))},
		"calls with one id":               {stream(start, begin(0, use("a")), begin(1, use("a")), begin(2, use("")), stop("tool_use"), end), says("", model.FinishToolCalls, call("a", `{}`), call("call_2", `{}`), call("call_3", `{}`))},
		"a call that is cut":              {stream(start, begin(0, use("a")), input(0, `{"x":`), stop("max_tokens"), end), says("", model.FinishLength, call("a", `"{\"x\":"`))},
		"JSON where a stream was asked":   {whole(`[{"type":"text","text":"a "},{"type":"text","text":"b"},{"type":"tool_use","id":"a","name":"look","input":{"n": 9007199254740993}}]`, "tool_use"), says("a b", model.FinishToolCalls, call("a", `{"n": 9007199254740993}`))},
		"usage and model left out":        {always(`{"role":"assistant","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn"}`), unnamed},
		"no content at all":               {whole(`[]`, "end_turn"), says("", model.FinishStop)},
		"comments, returns, a media type": {&canned{answers: []answer{{header: map[string]string{"Content-Type": "text/plain"}, body: strings.ReplaceAll(": hi\n\n"+sse(start, begin(0, textBlock), say(0, "ok"), stop("end_turn"), end), "\n", "\r\n")}}}, says("ok", model.FinishStop)},
		"nothing is read after the end":   {stream(start, begin(0, textBlock), say(0, "ok"), stop("end_turn"), end, `{"type":"error","error":{"type":"api_error","message":"late"}}`), says("ok", model.FinishStop)},
		"a citation, which is not text":   {stream(start, begin(0, `{"type":"text","text":"","citations":[]}`), delta(0, `{"type":"citations_delta","citation":{"type":"char_location","cited_text":"x"}}`), say(0, "ok"), stop("end_turn"), end), says("ok", model.FinishStop)},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			var told strings.Builder
			got, err := newModel(t, modeltest.Serve(t, c.server)).Generate(t.Context(), hi, func(d model.Delta) error {
				told.WriteString(d.Text)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("response\n got %+v\nwant %+v", got, c.want)
			}
			if told.String() != c.want.Message.Content {
				t.Errorf("streamed %q, want %q", told.String(), c.want.Message.Content)
			}
		})
	}
}

// Extended thinking with tools: the API refuses a tool's result without the
// thoughts that led to the call, and thoughts whose signature is not theirs.
func TestThoughtsComeBackAsTheyCame(t *testing.T) {
	t.Parallel()
	blocks := `{"type":"thinking","thinking":"I should <look>","signature":"signed:I should <look>"},{"type":"redacted_thinking","data":"c2VjcmV0"},` +
		`{"type":"text","text":"Let me look."},{"type":"thinking","thinking":"twice","signature":"signed:twice"},{"type":"tool_use","id":"toolu_a","name":"look","input":{"n":1}}`
	whole := `{"type":"message","role":"assistant","model":"m-1","content":[` + blocks + `],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}`
	streamed := sse(start,
		begin(0, `{"type":"thinking","thinking":"","signature":""}`), delta(0, `{"type":"thinking_delta","thinking":"I should "}`), delta(0, `{"type":"thinking_delta","thinking":"<look>"}`), delta(0, `{"type":"signature_delta","signature":"signed:I should <look>"}`),
		begin(1, `{"type":"redacted_thinking","data":"c2VjcmV0"}`),
		begin(2, `{"type":"text","text":""}`), say(2, "Let me "), say(2, "look."),
		begin(3, `{"type":"thinking","thinking":"","signature":""}`), delta(3, `{"type":"thinking_delta","thinking":"twice"}`), delta(3, `{"type":"signature_delta","signature":"signed:twice"}`),
		begin(4, `{"type":"tool_use","id":"toolu_a","name":"look","input":{}}`), delta(4, `{"type":"input_json_delta","partial_json":"{\"n\":1}"}`), stop("tool_use"), end)
	for _, first := range []answer{{body: whole}, {header: map[string]string{"Content-Type": "text/event-stream"}, body: streamed}} {
		server := &canned{answers: []answer{first, {body: fine}}}
		m := newModel(t, modeltest.Serve(t, server))
		req := *hi
		req.Params.Extended = json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":1024}}`)
		var told string
		res, err := m.Generate(t.Context(), &req, func(d model.Delta) error { told += d.Text; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if told != "Let me look." || res.Message.Content != told || len(res.Message.ToolCalls) != 1 {
			t.Errorf("streamed %q, response %+v", told, res)
		}
		// As the loop does it, with a checkpoint in between.
		kept, err := json.Marshal(res.Message)
		if err != nil {
			t.Fatal(err)
		}
		var back model.Message
		if err := json.Unmarshal(kept, &back); err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages[:1:1], back, model.ToolResult(back.ToolCalls[0], json.RawMessage(`1`)))
		if _, err := m.Generate(t.Context(), &req, nil); err != nil {
			t.Fatal(err)
		}
		var body struct {
			Messages []struct{ Content json.RawMessage }
		}
		if err := json.Unmarshal([]byte(server.bodies[1]), &body); err != nil {
			t.Fatal(err)
		}
		if got := string(body.Messages[1].Content); !modeltest.SameJSON(t, got, "["+blocks+"]") {
			t.Errorf("the turn went back as\n%s, want\n[%s]", got, blocks)
		}
		// The double verifies signatures.
		var real wireRequest
		if err := json.Unmarshal([]byte(server.bodies[1]), &real); err != nil || real.check() != nil {
			t.Errorf("the API would refuse it: %v, %v", err, real.check())
		}

		other := req
		other.Model = "another"
		if _, err := m.Generate(t.Context(), &other, nil); err != nil {
			t.Fatal(err)
		}
		if got := server.bodies[2]; strings.Contains(got, "signature") || !strings.Contains(got, "Let me look.") {
			t.Errorf("another model is told thoughts that are not its own: %s", got)
		}
	}
}

func TestPausedTurnsAreAskedOn(t *testing.T) {
	t.Parallel()
	first := sse(start, begin(0, `{"type":"text","text":""}`), say(0, "I search. "), begin(1, `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}`), delta(1, `{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}`), stop("pause_turn"), end)
	second := sse(start, begin(0, `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}`), begin(1, `{"type":"text","text":""}`), say(1, "Found."), stop("end_turn"), end)
	header := map[string]string{"Content-Type": "text/event-stream"}
	server := &canned{answers: []answer{{header: header, body: first}, {header: header, body: second}}}
	var told string
	res, err := newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), hi, func(d model.Delta) error { told += d.Text; return nil })
	if err != nil || told != "I search. Found." || res.Message.Content != told || len(server.bodies) != 2 || res.Usage.InputTokens != 120 || res.Usage.OutputTokens != 10 {
		t.Fatalf("streamed %q, response %+v, error %v, %d requests", told, res, err, len(server.bodies))
	}
	want := `"content":[{"type":"text","text":"I search. "},{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"x"}}],"role":"assistant"}`
	if !strings.Contains(server.bodies[1], want) {
		t.Errorf("the paused turn went back as %s", server.bodies[1])
	}

	server = &canned{answers: []answer{{header: header, body: first}}}
	_, err = newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), hi, nil)
	if !errors.Is(err, model.ErrUnavailable) || len(server.bodies) != 9 {
		t.Errorf("error %v after %d requests", err, len(server.bodies))
	}
}

func TestAnswersThatBreak(t *testing.T) {
	t.Parallel()
	const textBlock = `{"type":"text","text":""}`
	report := func(typ, message string) string {
		b, _ := json.Marshal(errorBody(typ, message))
		return string(b)
	}
	for name, c := range map[string]struct {
		server *canned
		kind   model.Kind
		text   string
	}{
		"a stream that just ends":        {stream(start, begin(0, textBlock), say(0, "ok")), model.ErrUnavailable, "broke off"},
		"an empty stream":                {stream(), model.ErrUnavailable, "broke off"},
		"an event that is no JSON":       {stream(start, "<html>"), model.ErrUnavailable, "not the JSON of one"},
		"overloaded in the midst":        {stream(start, begin(0, textBlock), say(0, "ok"), report("overloaded_error", "Overloaded")), model.ErrUnavailable, "Overloaded; overloaded_error; req_011"},
		"an error of another kind":       {stream(start, report("api_error", "oops")), model.ErrUnavailable, "oops; api_error"},
		"a limit in the midst":           {stream(start, report("rate_limit_error", "slow")), model.ErrRateLimited, "slow"},
		"a long conversation":            {stream(report("invalid_request_error", "prompt is too long: 2 tokens > 1 maximum")), model.ErrContextTooLong, "too long"},
		"a wrong key in the midst":       {stream(report("authentication_error", "bad "+testKey)), model.ErrAuth, "authentication_error"},
		"an error with status 200":       {always(report("invalid_request_error", "bad model")), model.ErrBadRequest, "bad model"},
		"no JSON":                        {always(`<html>`), model.ErrUnavailable, "not the JSON of a message"},
		"half of the JSON":               {always(fine[:40]), model.ErrUnavailable, "not the JSON of a message"},
		"JSON of something else":         {always(`{"choices":[]}`), model.ErrUnavailable, "not the JSON of a message"},
		"a call without a name":          {stream(start, begin(0, `{"type":"tool_use","id":"a"}`), stop("tool_use"), end), model.ErrUnavailable, "without a name"},
		"a block out of turn":            {stream(start, begin(1, textBlock), stop("end_turn"), end), model.ErrUnavailable, "not the next one"},
		"a block that is none":           {stream(start, begin(0, `{}`), stop("end_turn"), end), model.ErrUnavailable, "without a type"},
		"a piece of nothing":             {stream(start, say(0, "x"), stop("end_turn"), end), model.ErrUnavailable, "has not begun"},
		"a piece of less than nothing":   {stream(start, say(-1, "x"), stop("end_turn"), end), model.ErrUnavailable, "has not begun"},
		"text in a call":                 {stream(start, begin(0, `{"type":"tool_use","id":"a","name":"x","input":{}}`), say(0, "x"), stop("end_turn"), end), model.ErrUnavailable, "not of type text"},
		"too much":                       {always(strings.Repeat(" ", 70_000) + fine), model.ErrUnavailable, "exceeds the bound of 65536 bytes"},
		"a stream without end":           {stream(start, begin(0, textBlock), strings.Repeat(say(0, "x")+"\n\ndata: ", 5000)), model.ErrUnavailable, "exceeds the bound of 65536 bytes"},
		"a stream that broke, its cause": {&canned{answers: []answer{{header: map[string]string{"Content-Type": "text/event-stream", "Content-Length": "9999"}, body: sse(start)}}}, model.ErrUnavailable, "broke off: unexpected EOF"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, modeltest.Serve(t, c.server), func(cfg *anthropic.Config) { cfg.MaxResponse = 65536 })
			res, err := m.Generate(t.Context(), hi, func(model.Delta) error { return nil })
			if res != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || hasKey(err.Error()) {
				t.Errorf("response %+v, error %v, want %v that says %q", res, err, c.kind, c.text)
			}
		})
	}
}

func TestTooManyCallsAreRefused(t *testing.T) {
	t.Parallel()
	events := []string{start}
	for i := range 257 {
		events = append(events, begin(i, `{"type":"tool_use","id":"a","name":"x","input":{}}`))
	}
	_, err := newModel(t, modeltest.Serve(t, stream(append(events, stop("tool_use"), end)...))).Generate(t.Context(), hi, nil)
	if !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "more than 256 tool calls") {
		t.Errorf("error %v", err)
	}
}

// A compatible endpoint may number the calls of each turn anew.
func TestCallIDsAreNewToTheConversation(t *testing.T) {
	t.Parallel()
	old := model.ToolCall{ID: "call_1", Name: "x", Arguments: json.RawMessage(`{}`)}
	req := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), model.Assistant("", old), model.ToolResult(old, json.RawMessage(`1`))}}
	server := stream(start, begin(0, `{"type":"tool_use","id":"call_1","name":"x","input":{}}`), begin(1, `{"type":"tool_use","id":"","name":"x","input":{}}`), stop("tool_use"), end)
	res, err := newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	if calls := res.Message.ToolCalls; len(calls) != 2 || calls[0].ID != "call_2" || calls[1].ID != "call_3" {
		t.Errorf("calls %+v", calls)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	obj := func(typ, message string) string {
		b, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": typ, "message": message}, "request_id": "req_1"})
		return string(b)
	}
	for _, c := range []struct {
		answer answer
		want   model.Error
	}{
		{answer{400, nil, obj("invalid_request_error", "messages: no")}, model.Error{Kind: model.ErrBadRequest, Message: "messages: no; invalid_request_error; req_1"}},
		{answer{400, nil, obj("invalid_request_error", "prompt is too long: 200001 tokens > 200000 maximum")}, model.Error{Kind: model.ErrContextTooLong, Message: "prompt is too long: 200001 tokens > 200000 maximum; invalid_request_error; req_1"}},
		{answer{400, nil, obj("invalid_request_error", "Your credit balance is too low to access the API.")}, model.Error{Kind: model.ErrRateLimited, Message: "Your credit balance is too low to access the API.; invalid_request_error; req_1"}},
		{answer{401, nil, obj("authentication_error", "invalid x-api-key "+testKey)}, model.Error{Kind: model.ErrAuth, Message: "authentication_error; req_1"}},
		{answer{403, nil, `forbidden`}, model.Error{Kind: model.ErrAuth}},
		{answer{402, nil, obj("billing_error", "pay")}, model.Error{Kind: model.ErrRateLimited, Message: "pay; billing_error; req_1"}},
		{answer{404, nil, obj("not_found_error", "model: m")}, model.Error{Kind: model.ErrBadRequest, Message: "model: m; not_found_error; req_1"}},
		{answer{413, nil, obj("request_too_large", "too big")}, model.Error{Kind: model.ErrContextTooLong, Message: "too big; request_too_large; req_1"}},
		{answer{429, map[string]string{"Retry-After": "2"}, obj("rate_limit_error", "slow")}, model.Error{Kind: model.ErrRateLimited, Message: "slow; rate_limit_error; req_1", RetryAfter: 2 * time.Second}},
		{answer{500, nil, `<html>oops</html>`}, model.Error{Kind: model.ErrUnavailable}},
		{answer{503, map[string]string{"Retry-After": "3"}, `{"message":"loading"}`}, model.Error{Kind: model.ErrUnavailable, Message: "loading", RetryAfter: 3 * time.Second}},
		{answer{503, nil, `{"error":"gateway"}`}, model.Error{Kind: model.ErrUnavailable, Message: "gateway"}},
		{answer{529, map[string]string{"X-Should-Retry": "true", "Retry-After": "30"}, obj("overloaded_error", "busy\n\x1b[31m now")}, model.Error{Kind: model.ErrUnavailable, Message: "busy [31m now; overloaded_error; req_1", RetryAfter: 30 * time.Second}},
		{answer{400, nil, obj("invalid_request_error", "we got Bearer abcdef and "+testKey)}, model.Error{Kind: model.ErrBadRequest, Message: "we got [key] and [key]; invalid_request_error; req_1"}},
	} {
		server := &canned{answers: []answer{c.answer}}
		m := newModel(t, modeltest.Serve(t, server))
		for n, onDelta := range []func(model.Delta) error{nil, func(model.Delta) error { return nil }} {
			_, err := m.Generate(t.Context(), hi, onDelta)
			c.want.Status = c.answer.status
			var got *model.Error
			if !errors.As(err, &got) || !reflect.DeepEqual(*got, c.want) {
				t.Errorf("%d %s\n got %+v\nwant %+v", c.answer.status, c.answer.body, got, c.want)
			}
			if hasKey(fmt.Sprintf("%v %+v", err, got)) {
				t.Errorf("the error tells the key: %+v", got)
			}
			if len(server.bodies) != n+1 {
				t.Errorf("%d: %d requests, want no retries", c.answer.status, len(server.bodies))
			}
		}
	}
}

func TestServersKeysAndAddresses(t *testing.T) {
	t.Parallel()
	modeltest.Frame{
		New: func(t *testing.T, url string, timeout time.Duration, key func(context.Context) (string, error)) model.Model {
			return newModel(t, url, func(c *anthropic.Config) {
				if c.RequestTimeout = timeout; key != nil {
					c.Key = key
				}
			})
		},
		Double: double, Fine: fine, Path: "/v1/messages", HasKey: hasKey,
		Sent: func(h http.Header) string { return h.Get("X-Api-Key") },
		Refused: func(url string) error {
			_, err := anthropic.New(anthropic.Config{BaseURL: url, MaxTokens: -1})
			return err
		},
		Rest: []string{"negative"},
	}.Run(t)
}

func TestNothingComesFromTheEnvironment(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_FEDERATION_RULE_ID"} {
		t.Setenv(name, "from-the-environment")
	}
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1/")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Leak: from-the-environment")
	c := always(fine)
	m := newModel(t, modeltest.Serve(t, c), func(cfg *anthropic.Config) { cfg.Key = nil })
	if _, err := m.Generate(t.Context(), hi, nil); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.headers); strings.Contains(got, "environment") {
		t.Errorf("headers %s", got)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(true, sse(start, begin(0, `{"type":"thinking","thinking":"","signature":""}`), delta(0, `{"type":"thinking_delta","thinking":"a"}`), begin(1, `{"type":"text","text":"x"}`), say(1, "a b"),
		begin(2, `{"type":"tool_use","id":"a","name":"one","input":{}}`), delta(2, `{"type":"input_json_delta","partial_json":"{\"x\":1}"}`), stop("tool_use"), end))
	f.Add(true, sse(start, begin(0, `{"type":"server_tool_use","id":"a","name":"s","input":{}}`), stop("pause_turn"), end))
	f.Add(true, sse(`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`))
	f.Add(true, ": c\r\nevent: x\r\ndata: {}\r\ndata: {}\r\n\r\ndata:[DONE]\n\n")
	f.Add(false, fine)
	f.Add(false, `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"x","input":[1]},{"type":"new","x":1}],"stop_reason":"tool_use"}`)
	f.Fuzz(func(t *testing.T, stream bool, text string) {
		media := "application/json"
		if stream {
			media = "text/event-stream"
		}
		m, err := anthropic.New(anthropic.Config{BaseURL: "http://h", HTTPClient: &http.Client{Transport: modeltest.Body{Media: media, Text: text}}})
		if err != nil {
			t.Fatal(err)
		}
		modeltest.CheckAnswer(t, m, true, "build the request")
	})
}

package bedrock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/bedrock"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

// an event of a stream: a type and its JSON.
type event struct{ typ, data string }

func stream(events ...event) *canned {
	return &canned{answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
		e := newEvents(w)
		for _, ev := range events {
			kind, name := "event", ":event-type"
			if strings.HasSuffix(ev.typ, "Exception") {
				kind, name = "exception", ":exception-type"
			}
			e.frame(kind, name, ev.typ, json.RawMessage(ev.data))
		}
	}}}
}

// failing is a stream that ends with an error that is not an exception of the service.
func failing(code, message string) *canned {
	return &canned{answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
		newEvents(w).enc.Encode(w, eventstream.Message{Headers: eventstream.Headers{
			{Name: ":message-type", Value: eventstream.StringValue("error")},
			{Name: ":error-code", Value: eventstream.StringValue(code)},
			{Name: ":error-message", Value: eventstream.StringValue(message)},
		}})
	}}}
}

func delta(i int, d string) event {
	return event{"contentBlockDelta", fmt.Sprintf(`{"contentBlockIndex":%d,"delta":%s}`, i, d)}
}

func say(i int, text string) event { return delta(i, fmt.Sprintf(`{"text":%q}`, text)) }

func use(i int, id, name string) event {
	return event{"contentBlockStart", fmt.Sprintf(`{"contentBlockIndex":%d,"start":{"toolUse":{"toolUseId":%q,"name":%q}}}`, i, id, name)}
}

func input(i int, part string) event {
	return delta(i, fmt.Sprintf(`{"toolUse":{"input":%q}}`, part))
}

func stop(reason string) event { return event{"messageStop", fmt.Sprintf(`{"stopReason":%q}`, reason)} }

var counted = event{"metadata", `{"usage":{"inputTokens":10,"outputTokens":5,"totalTokens":15,"cacheReadInputTokens":30,"cacheWriteInputTokens":20},"metrics":{"latencyMs":1}}`}

func TestAnswers(t *testing.T) {
	t.Parallel()
	says := func(text string, finish model.Finish, calls ...model.ToolCall) *model.Response {
		return &model.Response{Message: model.Assistant(text, calls...), Finish: finish, Model: "m", Provider: "bedrock"}
	}
	call := func(id, args string) model.ToolCall {
		return model.ToolCall{ID: id, Name: "look", Arguments: json.RawMessage(args)}
	}
	usage := says("ok", model.FinishStop)
	usage.Usage = model.Usage{InputTokens: 60, OutputTokens: 5, CachedInputTokens: 30, CacheWriteTokens: 20}
	for name, c := range map[string]struct {
		server *canned
		want   *model.Response
	}{
		"with usage":                      {stream(event{"messageStart", `{"role":"assistant"}`}, say(0, "o"), say(0, "k"), event{"contentBlockStop", `{"contentBlockIndex":0}`}, stop("end_turn"), counted), usage},
		"without":                         {stream(say(0, "ok"), stop("end_turn")), says("ok", model.FinishStop)},
		"events that are yet to come":     {stream(event{"messageMood", `{"mood":"fine"}`}, say(0, "ok"), delta(0, `{"glow":1}`), stop("end_turn")), says("ok", model.FinishStop)},
		"several texts":                   {stream(say(0, "a "), say(1, "b"), stop("end_turn")), says("a b", model.FinishStop)},
		"a stop sequence":                 {stream(say(0, "ok"), stop("stop_sequence")), says("ok", model.FinishStop)},
		"cut at the limit":                {stream(say(0, "ok"), stop("max_tokens")), says("ok", model.FinishLength)},
		"cut at the window":               {stream(say(0, "ok"), stop("model_context_window_exceeded")), says("ok", model.FinishLength)},
		"held back by a guardrail":        {stream(say(0, "no"), stop("guardrail_intervened")), says("no", model.FinishContentFilter)},
		"held back by the model's vendor": {stream(stop("content_filtered")), says("", model.FinishContentFilter)},
		"a reason that is yet to come":    {stream(say(0, "ok"), stop("tired")), says("ok", model.FinishStop)},
		"a call":                          {stream(say(0, "look"), use(1, "a", "look"), input(1, `{"x"`), input(1, `:1}`), stop("tool_use")), says("look", model.FinishToolCalls, call("a", `{"x":1}`))},
		"calls that are told by turns":    {stream(use(0, "a", "look"), use(1, "b", "look"), input(1, `{"y":`), input(0, `{"x":1}`), input(1, `2}`), stop("tool_use")), says("", model.FinishToolCalls, call("a", `{"x":1}`), call("b", `{"y":2}`))},
		"a call without arguments":        {stream(use(0, "a", "look"), stop("tool_use")), says("", model.FinishToolCalls, call("a", `{}`))},
		"calls with one id":               {stream(use(0, "a", "look"), use(1, "a", "look"), use(2, "", "look"), stop("tool_use")), says("", model.FinishToolCalls, call("a", `{}`), call("call_2", `{}`), call("call_3", `{}`))},
		"a failure after the end":         {stream(say(0, "ok"), stop("end_turn"), event{"internalServerException", `{"message":"late"}`}), says("ok", model.FinishStop)},
		"no JSON after the end":           {stream(say(0, "ok"), stop("end_turn"), event{"metadata", `[1]`}), says("ok", model.FinishStop)},
		"a call that is cut":              {stream(use(0, "a", "look"), input(0, `{"x":`), stop("max_tokens")), says("", model.FinishLength, call("a", `"{\"x\":"`))},
		"calls that end the turn":         {stream(use(0, "a", "look"), stop("end_turn")), says("", model.FinishToolCalls, call("a", `{}`))},
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

func TestWholeAnswers(t *testing.T) {
	t.Parallel()
	server := always(`{"output":{"message":{"role":"assistant","content":[{"citationsContent":{"content":[{"text":"a "}]}},{"text":"b"},{"toolUse":{"toolUseId":"x","name":"look","input":{"n": 9007199254740993,"f":1.50,"list":[],"null":null}}},{"toolUse":{"toolUseId":"y","name":"look","input":null}}]}},"stopReason":"tool_use",
		"usage":{"inputTokens":10,"outputTokens":5,"totalTokens":15,"cacheReadInputTokens":30}}`)
	got, err := newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), hi, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Message.Content != "a b" || got.Finish != model.FinishToolCalls || got.Usage.InputTokens != 40 || got.Usage.CachedInputTokens != 30 || len(got.Message.ToolCalls) != 2 {
		t.Fatalf("response %+v", got)
	}
	if args := string(got.Message.ToolCalls[1].Arguments); args != "{}" {
		t.Errorf("arguments %s of a call without any", args)
	}
	// Every digit stays; the order of names does not matter.
	if args := string(got.Message.ToolCalls[0].Arguments); !modeltest.SameJSON(t, args, `{"n":9007199254740993,"f":1.50,"list":[],"null":null}`) {
		t.Errorf("arguments %s", args)
	}
}

func TestThoughtsComeBackAsTheyCame(t *testing.T) {
	t.Parallel()
	blocks := `{"reasoningContent":{"reasoningText":{"text":"I should <look>","signature":"signed:I should <look>"}}},{"reasoningContent":{"redactedContent":"c2VjcmV0"}},` +
		`{"text":"Let me look."},{"reasoningContent":{"reasoningText":{"text":"twice","signature":"signed:twice"}}},{"toolUse":{"toolUseId":"a","name":"look","input":{"n":1}}}`
	whole := `{"output":{"message":{"role":"assistant","content":[` + blocks + `]}},"stopReason":"tool_use","usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}`
	reason := func(i int, d string) event { return delta(i, `{"reasoningContent":`+d+`}`) }
	streamed := stream(reason(0, `{"text":"I should "}`), reason(0, `{"text":"<look>"}`), reason(0, `{"signature":"signed:I should <look>"}`), reason(1, `{"redactedContent":"c2VjcmV0"}`),
		say(2, "Let me "), say(2, "look."), reason(3, `{"text":"twice"}`), reason(3, `{"signature":"signed:twice"}`), use(4, "a", "look"), input(4, `{"n":1}`), stop("tool_use"))
	for _, first := range []http.HandlerFunc{says(whole), streamed.answers[0]} {
		server := &canned{answers: []http.HandlerFunc{first, either}}
		m := newModel(t, modeltest.Serve(t, server))
		req := *hi
		req.Params.Extended = json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":1024}}`)
		var onDelta func(model.Delta) error
		told := ""
		streams := reflect.ValueOf(first).Pointer() == reflect.ValueOf(streamed.answers[0]).Pointer()
		if streams {
			onDelta = func(d model.Delta) error { told += d.Text; return nil }
		}
		res, err := m.Generate(t.Context(), &req, onDelta)
		if err != nil {
			t.Fatal(err)
		}
		if streams && told != "Let me look." || res.Message.Content != "Let me look." || len(res.Message.ToolCalls) != 1 {
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
		other := req
		other.Model = "another"
		if _, err := m.Generate(t.Context(), &other, nil); err != nil {
			t.Fatal(err)
		}
		if got := server.bodies[2]; strings.Contains(got, "reasoningContent") || !strings.Contains(got, "Let me look.") {
			t.Errorf("another model is told thoughts that are not its own: %s", got)
		}
	}
}

func TestAnswersThatBreak(t *testing.T) {
	t.Parallel()
	many := []event{}
	for i := range 257 {
		many = append(many, use(i, "a", "x"))
	}
	raw := func(media, text string) *canned {
		return &canned{answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			io.WriteString(w, text)
		}}}
	}
	const js, es = "application/json", "application/vnd.amazon.eventstream"
	for name, c := range map[string]struct {
		server *canned
		whole  bool
		kind   model.Kind
		text   string
	}{
		"a stream that just ends":       {stream(say(0, "ok")), false, model.ErrUnavailable, "broke off"},
		"an empty stream":               {stream(), false, model.ErrUnavailable, "broke off"},
		"a frame that is none":          {raw(es, strings.Repeat("x", 200)), false, model.ErrUnavailable, "broke off"},
		"JSON where a stream was asked": {raw(js, fine), false, model.ErrUnavailable, "broke off"},
		"an event that is no JSON":      {stream(say(0, "ok"), event{"messageStop", `[1]`}), false, model.ErrUnavailable, "broke off"},
		"throttled in the midst":        {stream(say(0, "ok"), event{"throttlingException", `{"message":"slow down"}`}), false, model.ErrRateLimited, "slow down; ThrottlingException"},
		"overloaded in the midst":       {stream(say(0, "ok"), event{"serviceUnavailableException", `{"message":"busy"}`}), false, model.ErrUnavailable, "busy"},
		"broken in the midst":           {stream(say(0, "ok"), event{"modelStreamErrorException", `{"message":"oops","originalStatusCode":500}`}), false, model.ErrUnavailable, "oops"},
		"an error without a type":       {failing("internalServerException", "oops"), false, model.ErrUnavailable, "oops"},
		"an error without a name":       {failing("", "oops"), false, model.ErrUnavailable, "oops"},
		"an internal error":             {stream(event{"internalServerException", `{"message":"oops"}`}), false, model.ErrUnavailable, "oops"},
		"refused in the midst":          {stream(say(0, "ok"), event{"validationException", `{"message":"no temperature"}`}), false, model.ErrBadRequest, "no temperature"},
		"a long conversation":           {stream(event{"validationException", `{"message":"Input is too long for requested model"}`}), false, model.ErrContextTooLong, "too long"},
		"a call without a name":         {stream(use(0, "a", ""), stop("tool_use")), false, model.ErrUnavailable, "without a name"},
		"too many calls":                {stream(append(many, stop("tool_use"))...), false, model.ErrUnavailable, "more than 256 tool calls"},
		"malformed output":              {stream(stop("malformed_tool_use")), false, model.ErrUnavailable, "malformed_tool_use"},
		"too many blocks":               {raw(js, `{"output":{"message":{"role":"assistant","content":[`+strings.Repeat(`{"text":"x"},`, 2000)+`{"text":"x"}]}},"stopReason":"end_turn"}`), true, model.ErrUnavailable, "more than 1024 blocks"},
		"no JSON":                       {raw(js, `<html>`), true, model.ErrUnavailable, ""},
		"half of the JSON":              {raw(js, fine[:40]), true, model.ErrUnavailable, ""},
		"no message":                    {raw(js, `{"output":{},"stopReason":"end_turn"}`), true, model.ErrUnavailable, "no message"},
		"a message without a list":      {raw(js, `{"output":{"message":{"role":"assistant","content":{}}},"stopReason":"end_turn"}`), true, model.ErrUnavailable, "no message"},
		"too much":                      {raw(js, `{"x":"`+strings.Repeat("x", 70_000)+`"}`), true, model.ErrUnavailable, "exceeds the bound of 65536 bytes"},
		"too deep":                      {raw(js, `{"output":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`}`), true, model.ErrUnavailable, "not the JSON"},
		"a stream without end":          {raw(es, strings.Repeat("x", 70_000)), false, model.ErrUnavailable, ""},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, modeltest.Serve(t, c.server), func(cfg *bedrock.Config) { cfg.MaxResponse = 65536 })
			onDelta := func(model.Delta) error { return nil }
			if c.whole {
				onDelta = nil
			}
			res, err := m.Generate(t.Context(), hi, onDelta)
			if res != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || hasKey(err.Error()) {
				t.Errorf("response %+v, error %v, want %v that says %q", res, err, c.kind, c.text)
			}
		})
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status        int
		code, message string
		after         string
		want          model.Error
	}{
		{400, "ValidationException", "no", "", model.Error{Kind: model.ErrBadRequest, Message: "no; ValidationException"}},
		{400, "ValidationException", "Input is too long for requested model.", "", model.Error{Kind: model.ErrContextTooLong, Message: "Input is too long for requested model.; ValidationException"}},
		{400, "ServiceQuotaExceededException", "quota", "", model.Error{Kind: model.ErrRateLimited, Message: "quota; ServiceQuotaExceededException"}},
		{403, "AccessDeniedException", "no access with " + testSecret, "", model.Error{Kind: model.ErrAuth, Message: "AccessDeniedException"}},
		{403, "ExpiredTokenException", "expired", "", model.Error{Kind: model.ErrAuth, Message: "ExpiredTokenException"}},
		{404, "ResourceNotFoundException", "no such model", "", model.Error{Kind: model.ErrBadRequest, Message: "no such model; ResourceNotFoundException"}},
		{408, "ModelTimeoutException", "slow", "", model.Error{Kind: model.ErrUnavailable, Message: "slow; ModelTimeoutException"}},
		{424, "ModelErrorException", "oops", "", model.Error{Kind: model.ErrUnavailable, Message: "oops; ModelErrorException"}},
		{429, "ThrottlingException", "slow down", "2", model.Error{Kind: model.ErrRateLimited, Message: "slow down; ThrottlingException", RetryAfter: 2 * time.Second}},
		{429, "ModelNotReadyException", "wait", "3", model.Error{Kind: model.ErrUnavailable, Message: "wait; ModelNotReadyException", RetryAfter: 3 * time.Second}},
		{500, "InternalServerException", "oops", "", model.Error{Kind: model.ErrUnavailable, Message: "oops; InternalServerException"}},
		{503, "ServiceUnavailableException", "busy\n\x1b[31m now", "", model.Error{Kind: model.ErrUnavailable, Message: "busy [31m now; ServiceUnavailableException"}},
		{400, "ValidationException", "we got Bearer abcdef and " + testSecret + " of " + testID, "", model.Error{Kind: model.ErrBadRequest, Message: "we got [key] and [key] of [key]; ValidationException"}},
	} {
		server := &canned{answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			fail(w, c.status, c.code, c.message)
		}}}
		m := newModel(t, modeltest.Serve(t, server))
		for n, onDelta := range []func(model.Delta) error{nil, func(model.Delta) error { return nil }} {
			_, err := m.Generate(t.Context(), hi, onDelta)
			c.want.Status = c.status
			var got *model.Error
			if !errors.As(err, &got) || !reflect.DeepEqual(*got, c.want) {
				t.Errorf("%d %s\n got %+v\nwant %+v", c.status, c.code, got, c.want)
			}
			if hasKey(fmt.Sprintf("%v %+v", err, got)) {
				t.Errorf("the error tells the key: %+v", got)
			}
			if len(server.bodies) != n+1 {
				t.Errorf("%s: %d requests, want no retries", c.code, len(server.bodies))
			}
		}
	}
	// A gateway in front of the service has errors of its own form.
	for status, kind := range map[int]model.Kind{401: model.ErrAuth, 404: model.ErrBadRequest, 413: model.ErrContextTooLong, 429: model.ErrRateLimited, 502: model.ErrUnavailable} {
		m := newModel(t, modeltest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, `<html>`)
		})))
		_, err := m.Generate(t.Context(), hi, nil)
		var got *model.Error
		if !errors.As(err, &got) || got.Kind != kind || got.Status != status || strings.Contains(err.Error(), "html") {
			t.Errorf("%d: error %v, want %v", status, err, kind)
		}
	}
}

func TestServersAndAddresses(t *testing.T) {
	t.Parallel()
	modeltest.Frame{
		New: func(t *testing.T, url string, timeout time.Duration, _ func(context.Context) (string, error)) model.Model {
			return newModel(t, url, func(c *bedrock.Config) { c.RequestTimeout = timeout })
		},
		Double: double, Fine: fine, Path: "/model/", Server: "the service", HasKey: hasKey,
		Refused: func(url string) error {
			_, err := bedrock.New(bedrock.Config{BaseURL: url, Key: func(context.Context) (string, error) { return testKey, nil }, RequestTimeout: -1})
			return err
		},
		Rest: []string{"region: must not be empty", "negative"},
	}.Run(t)
}

// late is a transport that still reads the request when the answer has begun.
type late struct{ answer string }

func (l late) RoundTrip(req *http.Request) (*http.Response, error) {
	rest := func(p []byte) (int, error) {
		sent, err := io.ReadAll(req.Body)
		if err != nil || len(sent) == 0 {
			return 0, fmt.Errorf("the request was taken away: %d bytes, %v", len(sent), err)
		}
		return 0, io.EOF
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/vnd.amazon.eventstream"}}, Request: req,
		Body: io.NopCloser(io.MultiReader(readFunc(rest), strings.NewReader(l.answer)))}, nil
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestAnswersMayBeginBeforeTheRequestHasEnded(t *testing.T) {
	t.Parallel()
	m := newModel(t, "http://h", func(cfg *bedrock.Config) {
		cfg.HTTPClient = &http.Client{Transport: late{recorded(stream(say(0, "ok"), stop("end_turn")))}}
	})
	res, err := m.Generate(t.Context(), hi, func(model.Delta) error { return nil })
	if err != nil || res.Message.Content != "ok" {
		t.Errorf("response %+v, error %v", res, err)
	}
}

// recorded is a stream's bytes.
func recorded(c *canned) string {
	rec := httptest.NewRecorder()
	c.answers[0](rec, nil)
	return rec.Body.String()
}

func FuzzAnswer(f *testing.F) {
	f.Add(true, recorded(stream(delta(0, `{"reasoningContent":{"text":"a"}}`), say(1, "a b"), use(2, "a", "one"), input(2, `{"x":1}`), stop("tool_use"), counted)))
	f.Add(true, recorded(stream(say(0, "x"), event{"throttlingException", `{"message":"slow"}`})))
	f.Add(false, fine)
	f.Add(false, `{"output":{"message":{"role":"assistant","content":[{"toolUse":{"toolUseId":"a","name":"x","input":[1,{"y":null}]}},{"reasoningContent":{"redactedContent":"eA=="}},{"new":1}]}},"stopReason":"tool_use"}`)
	f.Fuzz(func(t *testing.T, stream bool, text string) {
		media := "application/json"
		if stream {
			media = "application/vnd.amazon.eventstream"
		}
		m, err := bedrock.New(bedrock.Config{Region: "eu-central-1", Key: func(context.Context) (string, error) { return testKey, nil }, HTTPClient: &http.Client{Transport: modeltest.Body{Media: media, Text: text}}})
		if err != nil {
			t.Fatal(err)
		}
		modeltest.CheckAnswer(t, m, stream, "build the request")
	})
}

// Models behind the service may number the calls of each turn anew.
func TestCallIDsAreNewToTheConversation(t *testing.T) {
	t.Parallel()
	old := model.ToolCall{ID: "call_1", Name: "x", Arguments: json.RawMessage(`{}`)}
	req := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), model.Assistant("", old), model.ToolResult(old, json.RawMessage(`1`))}}
	server := stream(use(0, "call_1", "x"), use(1, "", "x"), stop("tool_use"))
	res, err := newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), req, func(model.Delta) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if calls := res.Message.ToolCalls; len(calls) != 2 || calls[0].ID != "call_2" || calls[1].ID != "call_3" {
		t.Errorf("calls %+v", calls)
	}
}

package google_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/google"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

func stream(events ...string) string { return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n" }

func parts(finish, parts string) string {
	return fmt.Sprintf(`{"candidates":[{"content":{"role":"model","parts":[%s]},"finishReason":%q}]}`, parts, finish)
}

func TestFinishReasonsAndParts(t *testing.T) {
	t.Parallel()
	filtered := func(text string) *model.Response {
		return &model.Response{Message: model.Assistant(text), Finish: model.FinishContentFilter, Model: "m", Provider: "google"}
	}
	for name, c := range map[string]struct {
		answer string
		want   *model.Response
	}{
		"safety":            {parts("SAFETY", `{"text":"well,"}`), filtered("well,")},
		"recitation":        {parts("RECITATION", ``), filtered("")},
		"prohibited":        {parts("PROHIBITED_CONTENT", ``), filtered("")},
		"a blocked prompt":  {`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4}}`, &model.Response{Finish: model.FinishContentFilter, Message: model.Assistant(""), Model: "m", Provider: "google", Usage: model.Usage{InputTokens: 4}}},
		"the limit":         {parts("MAX_TOKENS", `{"text":"ok"}`), &model.Response{Message: model.Assistant("ok"), Finish: model.FinishLength, Model: "m", Provider: "google"}},
		"unknown":           {parts("NEW_REASON", `{"text":"ok"}`), &model.Response{Message: model.Assistant("ok"), Finish: model.FinishStop, Model: "m", Provider: "google"}},
		"thoughts":          {parts("STOP", `{"text":"hm","thought":true},{"text":"o"},{"text":"hm","thought":true},{"text":"k"}`), &model.Response{Message: model.Assistant("ok"), Finish: model.FinishStop, Model: "m", Provider: "google"}},
		"other parts":       {parts("STOP", `{"text":"ok"},{"inlineData":{"mimeType":"image/png","data":"AA=="}},{"executableCode":{"code":"x"}}`), &model.Response{Message: model.Assistant("ok"), Finish: model.FinishStop, Model: "m", Provider: "google"}},
		"another candidate": {`{"candidates":[{"index":1,"content":{"parts":[{"text":"no"}]},"finishReason":"STOP"},{"content":{"parts":[{"text":"ok"}]},"finishReason":"STOP"}]}`, &model.Response{Message: model.Assistant("ok"), Finish: model.FinishStop, Model: "m", Provider: "google"}},
		"a call without args": {parts("STOP", `{"functionCall":{"name":"one"}}`), &model.Response{Message: model.Assistant("", model.ToolCall{ID: "call_1", Name: "one", Arguments: json.RawMessage(`{}`)}),
			Finish: model.FinishToolCalls, Model: "m", Provider: "google"}},
		"usage": {`{"candidates":[{"content":{"parts":[{"text":"ok"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":3,"thoughtsTokenCount":20,"toolUsePromptTokenCount":5,"cachedContentTokenCount":8,"totalTokenCount":38},"modelVersion":"m-001"}`,
			&model.Response{Message: model.Assistant("ok"), Finish: model.FinishStop, Model: "m-001", Provider: "google", Usage: model.Usage{InputTokens: 15, OutputTokens: 23, CachedInputTokens: 8}}},
	} {
		for _, text := range []string{c.answer, stream(c.answer)} {
			var onDelta func(model.Delta) error
			told := ""
			if strings.HasPrefix(text, "data:") {
				onDelta = func(d model.Delta) error { told += d.Text; return nil }
			}
			got, err := newModel(t, modeltest.Serve(t, &canned{answers: []string{text}})).Generate(t.Context(), hi, onDelta)
			if err != nil || !reflect.DeepEqual(got, c.want) || onDelta != nil && told != c.want.Message.Content {
				t.Errorf("%s: error %v, told %q\n got %+v\nwant %+v", name, err, told, got, c.want)
			}
		}
	}
}

// Unusual forms of answers, and forms that must be refused.
func TestFormsOfAnswers(t *testing.T) {
	t.Parallel()
	event := parts("STOP", `{"text":"ok"}`)
	for name, c := range map[string]struct {
		answer string
		tokens int64 // -1 means a failure
	}{
		"comments and types":           {": ping\n\nevent: message\nid: 1\ndata: " + event + "\n\n: bye\n\n", 0},
		"no empty line at the end":     {"data: " + event, 0},
		"no space, other line ends":    {"data:" + event + "\r\n\r\n", 0},
		"nulls":                        {stream(`null`, `{"candidates":[null,{"content":null,"finishReason":null}],"usageMetadata":null,"promptFeedback":null}`, event), 0},
		"members that are not read":    {stream(strings.Replace(event, "{", `{"responseId":7,"createTime":"noon",`, 1)), 0},
		"other forms of a number":      {stream(`{"usageMetadata":{"promptTokenCount":1e1,"toolUsePromptTokenCount":2.0,"candidatesTokenCount":null}}`, event), 12},
		"a fraction":                   {stream(`{"usageMetadata":{"promptTokenCount":1.5}}`, event), -1},
		"a number too large":           {stream(`{"usageMetadata":{"promptTokenCount":2147483648}}`, event), -1},
		"a text as a number":           {stream(`{"usageMetadata":{"promptTokenCount":"5"}}`, event), -1},
		"a number as a text":           {stream(parts("", `{"text":5}`), event), -1},
		"candidates of no list":        {stream(`{"candidates":{}}`, event), -1},
		"a candidate that is a number": {stream(`{"candidates":[1]}`, event), -1},
		"arguments in a list":          {stream(parts("", `{"functionCall":{"name":"x","args":[1]}}`), event), -1},
		"a signature that is none":     {stream(parts("", `{"text":"x","thoughtSignature":"*"}`), event), -1},
		"text between events":          {stream(event) + "<html>\n\n", -1},
		"a document instead":           {event, -1},
	} {
		res, err := newModel(t, modeltest.Serve(t, &canned{answers: []string{c.answer}})).Generate(t.Context(), hi, func(model.Delta) error { return nil })
		switch {
		case c.tokens < 0:
			if res != nil || !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "not what the API") {
				t.Errorf("%s: response %+v, error %v", name, res, err)
			}
		case err != nil || res.Message.Content != "ok" || res.Usage.InputTokens != c.tokens:
			t.Errorf("%s: response %+v, error %v", name, res, err)
		}
	}
}

func TestAnswersThatBreak(t *testing.T) {
	t.Parallel()
	event := parts("", `{"text":"it began "}`)
	for name, c := range map[string]struct {
		answer string
		kind   model.Kind
		text   string
	}{
		"a stream that just ends":   {stream(event), model.ErrUnavailable, "broke off"},
		"an empty stream":           {"data:", model.ErrUnavailable, ""},
		"an event cut in half":      {stream(event) + `data: {"cand`, model.ErrUnavailable, "not what the API"},
		"an event that is no JSON":  {stream(event, "<html>"), model.ErrUnavailable, "not what the API"},
		"an error event":            {stream(event, `{"error":{"code":503,"status":"UNAVAILABLE","message":"overloaded"}}`), model.ErrUnavailable, "overloaded; UNAVAILABLE"},
		"a quota met in the middle": {stream(event, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow"}}`), model.ErrRateLimited, "slow"},
		"an error of no event":      {stream(event) + "{\n  \"error\": {\n    \"code\": 429,\n    \"status\": \"RESOURCE_EXHAUSTED\",\n    \"details\": 1\n  }\n}\n", model.ErrRateLimited, "(HTTP 429): RESOURCE_EXHAUSTED"},
		"a malformed call":          {stream(parts("MALFORMED_FUNCTION_CALL", "")), model.ErrUnavailable, "MALFORMED_FUNCTION_CALL"},
		"a malformed response":      {stream(parts("MALFORMED_RESPONSE", "")), model.ErrUnavailable, "MALFORMED_RESPONSE"},
		"half a malformed response": {stream(event, parts("MALFORMED_RESPONSE", "")), model.ErrUnavailable, "MALFORMED_RESPONSE"},
		"no thought signature":      {stream(parts("MISSING_THOUGHT_SIGNATURE", "")), model.ErrUnavailable, "MISSING_THOUGHT_SIGNATURE"},
		"no image":                  {stream(parts("NO_IMAGE", "")), model.ErrUnavailable, "answered nothing: NO_IMAGE"},
		"an unknown reason":         {stream(parts("LATER", "")), model.ErrUnavailable, "answered nothing: LATER"},
		"a call without a name":     {stream(parts("STOP", `{"functionCall":{"args":{}}}`)), model.ErrUnavailable, "without a name"},
		"nothing":                   {stream(parts("OTHER", "")), model.ErrUnavailable, "answered nothing"},
		"too many calls":            {stream(parts("STOP", strings.Repeat(`{"functionCall":{"name":"x"}},`, 300)+`{"text":"x"}`)), model.ErrUnavailable, ""},
		"too much":                  {stream(strings.Repeat(event+"\n\ndata: ", 2000) + event), model.ErrUnavailable, "exceeds the bound of 65536 bytes"},
	} {
		m := newModel(t, modeltest.Serve(t, &canned{answers: []string{c.answer}}), func(cfg *google.Config) { cfg.MaxResponse = 65536 })
		res, err := m.Generate(t.Context(), hi, func(model.Delta) error { return nil })
		if res != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: response %+v, error %v, want %v that says %q", name, res, err, c.kind, c.text)
		}
	}
	for _, text := range []string{`<html>`, fine[:40], `{"candidates":[]}`, `[]`} {
		if res, err := newModel(t, modeltest.Serve(t, &canned{answers: []string{text}})).Generate(t.Context(), hi, nil); res != nil || !errors.Is(err, model.ErrUnavailable) || strings.Contains(err.Error(), "html") {
			t.Errorf("%s: response %+v, error %v", text, res, err)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	status := func(code int, name, message string, details ...map[string]any) string {
		b, _ := json.Marshal(map[string]any{"error": map[string]any{"code": code, "status": name, "message": message, "details": details}})
		return string(b)
	}
	for _, c := range []struct {
		status int
		header map[string]string
		body   string
		want   model.Error
	}{
		{400, nil, status(400, "INVALID_ARGUMENT", "bad temperature"), model.Error{Kind: model.ErrBadRequest, Message: "bad temperature; INVALID_ARGUMENT"}},
		{400, nil, status(400, "INVALID_ARGUMENT", "API key not valid: "+testKey, errorInfo("API_KEY_INVALID")), model.Error{Kind: model.ErrAuth, Message: "INVALID_ARGUMENT; API_KEY_INVALID"}},
		{400, nil, status(400, "INVALID_ARGUMENT", "The input token count exceeds the maximum number of tokens allowed (1048576)."), model.Error{Kind: model.ErrContextTooLong, Message: "The input token count exceeds the maximum number of tokens allowed (1048576).; INVALID_ARGUMENT"}},
		{401, nil, status(401, "UNAUTHENTICATED", "token "+testKey), model.Error{Kind: model.ErrAuth, Message: "UNAUTHENTICATED"}},
		{403, nil, `forbidden`, model.Error{Kind: model.ErrAuth}},
		{404, nil, status(404, "NOT_FOUND", "models/m is not found"), model.Error{Kind: model.ErrBadRequest, Message: "models/m is not found; NOT_FOUND"}},
		{429, nil, status(429, "RESOURCE_EXHAUSTED", "quota", map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}), model.Error{Kind: model.ErrRateLimited, Message: "quota; RESOURCE_EXHAUSTED", RetryAfter: 34500 * time.Millisecond}},
		{429, map[string]string{"Retry-After": "7"}, status(429, "RESOURCE_EXHAUSTED", "quota", map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "9999h"}), model.Error{Kind: model.ErrRateLimited, Message: "quota; RESOURCE_EXHAUSTED", RetryAfter: 7 * time.Second}},
		{429, nil, status(429, "RESOURCE_EXHAUSTED", "quota", map[string]any{"@type": "x/google.rpc.RetryInfo", "retryDelay": "soon"}, map[string]any{"@type": 3}), model.Error{Kind: model.ErrRateLimited, Message: "quota; RESOURCE_EXHAUSTED"}},
		{500, nil, `<html>` + testKey + `</html>`, model.Error{Kind: model.ErrUnavailable}},
		{503, nil, status(503, "UNAVAILABLE", "overloaded, "+testKey), model.Error{Kind: model.ErrUnavailable, Message: "overloaded, [key]; UNAVAILABLE"}},
		{503, nil, ``, model.Error{Kind: model.ErrUnavailable}},
		{400, nil, `the input token count exceeds the limit`, model.Error{Kind: model.ErrContextTooLong}},
		{404, nil, `{"error":{"code":"404","status":"NOT_FOUND","message":"x"}}`, model.Error{Kind: model.ErrBadRequest}},
		{408, map[string]string{"Retry-After": "7"}, `[]`, model.Error{Kind: model.ErrUnavailable, RetryAfter: 7 * time.Second}},
		{413, nil, `{"error":{"message":"x"}}`, model.Error{Kind: model.ErrContextTooLong}},
	} {
		m := newModel(t, modeltest.Serve(t, &canned{status: c.status, header: c.header, answers: []string{c.body}}))
		for _, onDelta := range []func(model.Delta) error{nil, func(model.Delta) error { return nil }} {
			_, err := m.Generate(t.Context(), hi, onDelta)
			c.want.Status = c.status
			var got *model.Error
			if !errors.As(err, &got) {
				t.Fatalf("%d: error %v", c.status, err)
			}
			got.Err = nil
			if !reflect.DeepEqual(*got, c.want) {
				t.Errorf("%d %s\n got %+v\nwant %+v", c.status, c.body, got, c.want)
			}
			if hasKey(fmt.Sprintf("%v %+v", err, got)) {
				t.Errorf("the error tells the key: %+v", got)
			}
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(true, stream(parts("", `{"text":"a "},{"functionCall":{"name":"x","args":{"n":1.0}},"thoughtSignature":"AA=="}`), parts("STOP", `{"text":"b"}`)))
	f.Add(true, stream(`{"error":{"code":429,"message":"x","details":[{"@type":"google.rpc.RetryInfo","retryDelay":"1s"}]}}`))
	f.Add(true, ": c\r\n\r\ndata:{}\r\n\r\nx")
	f.Add(true, "{\n\"error\": {\"code\": 503}\n}\n\ndata: null")
	f.Add(false, fine)
	f.Add(false, `{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":1e3}}`)
	f.Fuzz(func(t *testing.T, sse bool, text string) {
		media := "application/json"
		if sse {
			media = "text/event-stream"
		}
		m, err := google.New(google.Config{BaseURL: "http://h", HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return answer(media, text, r), nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		modeltest.CheckAnswer(t, m, sse, "build the request")
	})
}

func FuzzFailure(f *testing.F) {
	f.Add(429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"x","details":[{"@type":"google.rpc.RetryInfo","retryDelay":"1s"}]}}`)
	f.Add(400, `{"error":{"code":"400","status":"API_KEY_INVALID","details":[1]}}`)
	f.Add(300, `<html>`)
	f.Fuzz(func(t *testing.T, status int, text string) {
		if status < 300 || status > 599 {
			return
		}
		m, err := google.New(google.Config{BaseURL: "http://h", Key: secret, HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			res := answer("application/json", text+testKey, r)
			res.StatusCode = status
			return res, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		res, err := m.Generate(t.Context(), hi, nil)
		var e *model.Error
		if res != nil || !errors.As(err, &e) || hasKey(err.Error()) {
			t.Fatalf("response %v and error %v", res, err)
		}
		if status >= 400 && e.Status != status {
			t.Errorf("status %d, want %d", e.Status, status)
		}
	})
}

// An answer in many small parts is put together once: with a copy for each part, one of a few
// megabytes would keep a processor busy for minutes. No other test runs beside this one.
func TestManySmallPartsAreCopiedOnce(t *testing.T) {
	const n = 100_000
	srv := modeltest.Serve(t, &canned{answers: []string{parts("STOP", strings.Repeat(`{"text":"x"},`, n)+`{"text":"."}`)}})
	m := newModel(t, srv)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := m.Generate(t.Context(), hi, nil)
	runtime.ReadMemStats(&after)
	if err != nil || got.Message.Content != strings.Repeat("x", n)+"." {
		t.Fatal(err)
	}
	if all := (after.TotalAlloc - before.TotalAlloc) >> 20; all > 500 {
		t.Errorf("it took %d MiB to read an answer of one", all)
	}
}

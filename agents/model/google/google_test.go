package google_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/aimocktest"
	"github.com/aeemesh/aeemesh/agents/model/google"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]func(*google.Config){"google": func(*google.Config) {}, "vertex_ai": vertex} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			modeltest.Run(t, func(t *testing.T, turns ...modeltest.Turn) model.Model {
				return newModel(t, double(t, turns...).URL, mend)
			})
		})
	}
}

func TestAgainstAimock(t *testing.T) {
	t.Parallel()
	server := aimocktest.Start(t)
	for name, mend := range map[string]func(*google.Config){
		"google":    func(*google.Config) {},
		"vertex_ai": func(c *google.Config) { vertex(c); c.APIVersion = "v1" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			aimocktest.Run(t, server, aimocktest.Options{Model: "gemini-2.5-flash"}, func(t *testing.T, s *aimocktest.Stage) model.Model {
				return newModel(t, s.URL, mend)
			})
		})
	}
}

// canned serves answers, the last one again and again, and keeps what was asked.
type canned struct {
	status  int
	header  map[string]string
	answers []string
	mu      sync.Mutex
	bodies  []string
	uris    []string
	headers []http.Header
}

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	answer := c.answers[min(len(c.bodies), len(c.answers)-1)]
	c.bodies = append(c.bodies, string(body))
	c.uris = append(c.uris, r.RequestURI)
	c.headers = append(c.headers, r.Header.Clone())
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if strings.HasPrefix(answer, "data:") {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	for k, v := range c.header {
		w.Header().Set(k, v)
	}
	if status := c.status; status != 0 && strings.Contains(answer, `"error"`) || !strings.Contains(answer, "candidates") && status != 0 {
		w.WriteHeader(status)
	}
	io.WriteString(w, answer)
}

const fine = `{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"ok"}]},"finishReason":"STOP"}],"modelVersion":"m"}`

func serve(t *testing.T, h http.Handler) string {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

var hi = &model.Request{Model: "m", Messages: []model.Message{model.User("hi")}}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	decode := func(s string) (v any) {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("decode %s: %v", s, err)
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}

func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	f := func(v float64) *float64 { return &v }
	seed := int64(7)
	a := model.ToolCall{ID: "c1", Name: "look", Arguments: json.RawMessage(`{"n":9007199254740993}`)}
	b := model.ToolCall{ID: "c2", Name: "hear", Arguments: json.RawMessage(`"no object"`)}
	req := &model.Request{
		Model: "gemini-2.5-flash",
		Messages: []model.Message{model.System("be <brief> & kind"), model.User("hi"), model.Assistant("let me see", a, b),
			model.ToolResult(a, json.RawMessage(`{"ok":9007199254740993}`)), model.ToolFailure(b, `no "ears"`), model.Assistant(""), model.System("and polite"), model.User("")},
		Tools:  []model.ToolDef{{Name: "look", Description: "looks", Parameters: json.RawMessage(`{"type":"object","z":1.50,"a":9007199254740993}`)}, {Name: "bare"}},
		Format: model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object","z":1,"a":2}`)},
		Params: model.Params{Temperature: f(0.7), MaxTokens: 7, TopP: f(0.25), FrequencyPenalty: f(-1.5), PresencePenalty: f(1), Stop: []string{"END", "."}, Seed: &seed,
			Extended: json.RawMessage(`{"generationConfig":{"thinkingConfig":{"thinkingBudget":1024},"temperature": 0.90},"safetySettings":[{"category":"X"}],"vendor.knob*":{"y":1.50,"x":"<&>"}}`)},
	}
	const want = `{"systemInstruction":{"parts":[{"text":"be <brief> & kind"},{"text":"and polite"}]},"contents":[{"role":"user","parts":[{"text":"hi"}]},` +
		`{"role":"model","parts":[{"text":"let me see"},{"functionCall":{"name":"look","args":{"n":9007199254740993}}},{"functionCall":{"name":"hear","args":{"arguments":"no object"}}}]},` +
		`{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"output":{"ok":9007199254740993}}}},{"functionResponse":{"name":"hear","response":{"error":"no \"ears\""}}}]},` +
		`{"role":"user","parts":[{"text":" "}]}],` +
		`"tools":[{"functionDeclarations":[{"name":"look","description":"looks","parametersJsonSchema":{"type":"object","z":1.50,"a":9007199254740993}},{"name":"bare"}]}],` +
		`"generationConfig":{"temperature":0.90,"topP":0.25,"maxOutputTokens":7,"stopSequences":["END","."],"presencePenalty":1,"frequencyPenalty":-1.5,"seed":7,` +
		`"responseMimeType":"application/json","responseJsonSchema":{"type":"object","z":1,"a":2},"thinkingConfig":{"thinkingBudget":1024}},` +
		`"safetySettings":[{"category":"X"}],"vendor.knob*":{"y":1.50,"x":"<&>"}}`
	c := &canned{answers: []string{fine}}
	res, err := newModel(t, serve(t, c)).Generate(t.Context(), req, nil)
	if err != nil || len(res.Dropped) > 0 || res.Provider != "google" {
		t.Fatalf("response %+v, error %v", res, err)
	}
	if !sameJSON(t, c.bodies[0], want) {
		t.Errorf("body\n got %s\nwant %s", c.bodies[0], want)
	}
	if !strings.Contains(c.bodies[0], `"vendor.knob*":{"y":1.50,"x":"<&>"}`) || !strings.Contains(c.bodies[0], `"temperature":0.90`) {
		t.Errorf("extended parameters did not travel byte for byte: %s", c.bodies[0])
	}
	if h := c.headers[0]; h.Get("X-Goog-Api-Key") != testKey || h.Get("Authorization") != "" || h.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", h)
	}

	// A seed that the API has no room for is left out.
	seed = 1 << 40
	c = &canned{answers: []string{fine}}
	req.Params.Extended = nil
	res, err = newModel(t, serve(t, c), vertex).Generate(t.Context(), req, nil)
	if err != nil || !slices.Equal(res.Dropped, []string{"seed"}) || strings.Contains(c.bodies[0], "seed") || res.Provider != "vertex_ai" {
		t.Errorf("response %+v, error %v, body %s", res, err, c.bodies[0])
	}
	// A conversation of rules alone has to have something to answer.
	if _, err := newModel(t, serve(t, c)).Generate(t.Context(), &model.Request{Model: "m", Messages: []model.Message{model.System("say hi")}}, nil); err != nil || c.bodies[1] != `{"contents":[{"role":"user","parts":[{"text":"say hi"}]}]}` {
		t.Errorf("body %s, error %v", c.bodies[1], err)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  google.Config
		name string
		want string
	}{
		{google.Config{Key: secret}, "gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent"},
		{google.Config{Key: secret, BaseURL: "http://proxy/x/v1/"}, "models/m", "http://proxy/x/v1/models/m:generateContent"},
		{google.Config{Key: secret, BaseURL: "http://proxy/x", APIVersion: "v1alpha"}, "tunedModels/m", "http://proxy/x/v1alpha/tunedModels/m:generateContent"},
		{google.Config{Provider: google.Vertex, Project: "p", Token: secret}, "gemini-2.5-pro", "https://aiplatform.googleapis.com/v1beta1/projects/p/locations/global/publishers/google/models/gemini-2.5-pro:generateContent"},
		{google.Config{Provider: google.Vertex, Project: "p", Location: "us-central1", Token: secret}, "meta/llama", "https://us-central1-aiplatform.googleapis.com/v1beta1/projects/p/locations/us-central1/publishers/meta/models/llama:generateContent"},
		{google.Config{Provider: google.Vertex, Project: "p", Location: "eu", Token: secret}, "m", "https://aiplatform.eu.rep.googleapis.com/v1beta1/projects/p/locations/eu/publishers/google/models/m:generateContent"},
		{google.Config{Provider: google.Vertex, Key: secret}, "m", "https://aiplatform.googleapis.com/v1beta1/publishers/google/models/m:generateContent"},
	} {
		var got string
		c.cfg.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			got = r.URL.String()
			return answer("application/json", fine, r), nil
		})}
		m, err := google.New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Generate(t.Context(), &model.Request{Model: c.name, Messages: hi.Messages}, nil); err != nil || got != c.want {
			t.Errorf("asked %s, want %s; error %v", got, c.want, err)
		}
	}
	m := newModel(t, "http://h")
	for _, name := range []string{"", "a?b", "../x", "a&b"} {
		if _, err := m.Generate(t.Context(), &model.Request{Model: name, Messages: hi.Messages}, nil); !errors.Is(err, model.ErrBadRequest) {
			t.Errorf("model %q: error %v", name, err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(media, text string, r *http.Request) *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}
}

func TestNewReportsAllProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  google.Config
		want []string
	}{
		{google.Config{Provider: "gemini", RequestTimeout: -1, Key: secret, Token: secret}, []string{"neither google nor vertex_ai", "negative", "only one"}},
		{google.Config{BaseURL: "ftp://x", Project: "p"}, []string{"want http://", "google has none"}},
		{google.Config{BaseURL: "http://u:secret@h/v1"}, []string{"no user"}},
		{google.Config{BaseURL: "http://h?key=secret"}, []string{"no user, query"}},
		{google.Config{BaseURL: "http://h:secret:port"}, []string{"not a URL"}},
		{google.Config{APIVersion: "v1/../x"}, []string{"api version"}},
		{google.Config{Provider: google.Vertex}, []string{"project: must be given"}},
		{google.Config{Provider: google.Vertex, Project: "p/../q", Location: "us/x"}, []string{`"p/../q" is not a name`, `"us/x" is not a name`}},
	} {
		_, err := google.New(c.cfg)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%+v: error %v, want %q", c.cfg, err, want)
			}
		}
	}
}

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
			got, err := newModel(t, serve(t, &canned{answers: []string{text}})).Generate(t.Context(), hi, onDelta)
			if err != nil || !reflect.DeepEqual(got, c.want) || onDelta != nil && told != c.want.Message.Content {
				t.Errorf("%s: error %v, told %q\n got %+v\nwant %+v", name, err, told, got, c.want)
			}
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
		"a malformed call":          {stream(parts("MALFORMED_FUNCTION_CALL", "")), model.ErrUnavailable, "MALFORMED_FUNCTION_CALL"},
		"a call without a name":     {stream(parts("STOP", `{"functionCall":{"args":{}}}`)), model.ErrUnavailable, "without a name"},
		"nothing":                   {stream(parts("OTHER", "")), model.ErrUnavailable, "answered nothing"},
		"too many calls":            {stream(parts("STOP", strings.Repeat(`{"functionCall":{"name":"x"}},`, 300)+`{"text":"x"}`)), model.ErrUnavailable, ""},
		"too much":                  {stream(strings.Repeat(event+"\n\ndata: ", 2000) + event), model.ErrUnavailable, "exceeds the bound of 65536 bytes"},
	} {
		m := newModel(t, serve(t, &canned{answers: []string{c.answer}}), func(cfg *google.Config) { cfg.MaxResponse = 65536 })
		res, err := m.Generate(t.Context(), hi, func(model.Delta) error { return nil })
		if res != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: response %+v, error %v, want %v that says %q", name, res, err, c.kind, c.text)
		}
	}
	for _, text := range []string{`<html>`, fine[:40], `{"candidates":[]}`, `[]`} {
		if res, err := newModel(t, serve(t, &canned{answers: []string{text}})).Generate(t.Context(), hi, nil); res != nil || !errors.Is(err, model.ErrUnavailable) || strings.Contains(err.Error(), "html") {
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
	} {
		m := newModel(t, serve(t, &canned{status: c.status, header: c.header, answers: []string{c.body}}))
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

func TestUnreachableAndSlowServersAreUnavailable(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	if _, err := newModel(t, srv.URL).Generate(t.Context(), hi, nil); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "cannot reach 127.0.0.1: ") || hasKey(err.Error()) {
		t.Errorf("error %v", err)
	}
	m := newModel(t, double(t, modeltest.Turn{Hang: true, Text: "it began "}).URL, func(c *google.Config) { c.RequestTimeout = 30 * time.Millisecond })
	for _, onDelta := range []func(model.Delta) error{nil, func(model.Delta) error { return nil }} {
		var e *model.Error
		if _, err := m.Generate(t.Context(), hi, onDelta); !errors.As(err, &e) || e.Kind != model.ErrUnavailable || e.Message != "no complete answer within 30ms" {
			t.Errorf("error %v", err)
		}
	}
}

func TestCredentialStaysAtItsOrigin(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]func(*google.Config){"google": func(*google.Config) {}, "vertex_ai": vertex} {
		elsewhere := &canned{answers: []string{fine}}
		url := serve(t, elsewhere)
		m := newModel(t, serve(t, http.RedirectHandler(url+"/v1beta/models/m:generateContent", http.StatusTemporaryRedirect)), mend)
		if _, err := m.Generate(t.Context(), hi, nil); !errors.Is(err, model.ErrUnavailable) || hasKey(err.Error()) || len(elsewhere.bodies) != 0 {
			t.Errorf("%s: error %v, elsewhere %v", name, err, elsewhere.headers)
		}
	}
}

func TestKeyIsResolvedAtEachCall(t *testing.T) {
	t.Parallel()
	c := &canned{answers: []string{fine}}
	key := "first"
	var keyErr error
	m := newModel(t, serve(t, c), func(cfg *google.Config) {
		cfg.Key = func(context.Context) (string, error) { return key, keyErr }
	})
	for _, key = range []string{"first", "second", ""} {
		if _, err := m.Generate(t.Context(), hi, nil); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, h := range c.headers {
		got = append(got, h.Get("X-Goog-Api-Key"))
	}
	if want := []string{"first", "second", ""}; !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
	keyErr = errors.New("environment variable LLM_KEY is not set")
	if _, err := m.Generate(t.Context(), hi, nil); !errors.Is(err, model.ErrAuth) || !strings.Contains(err.Error(), "LLM_KEY") || len(c.bodies) != 3 {
		t.Errorf("error %v after %d requests", err, len(c.bodies))
	}
}

func TestNothingComesFromTheEnvironment(t *testing.T) {
	for _, name := range []string{"GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"} {
		t.Setenv(name, "from-the-environment")
	}
	t.Setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
	t.Setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1/")
	t.Setenv("GOOGLE_VERTEX_BASE_URL", "http://127.0.0.1:1/")
	for _, mend := range []func(*google.Config){func(c *google.Config) { c.Key = nil }, vertex, func(c *google.Config) { c.Provider = google.Vertex }} {
		c := &canned{answers: []string{fine}}
		if _, err := newModel(t, serve(t, c), mend).Generate(t.Context(), hi, nil); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.headers, c.uris); strings.Contains(got, "environment") {
			t.Errorf("sent %s", got)
		}
	}
}

// What the model signed goes back as it was, each part with its signature, and
// to the model that signed it alone.
func TestSignaturesGoBack(t *testing.T) {
	t.Parallel()
	signed := parts("STOP", `{"text":"I look.","thoughtSignature":"dGV4dA=="},{"functionCall":{"id":"given-1","name":"one","args":{"n":1.0}},"thoughtSignature":"Zmlyc3Q="},{"functionCall":{"name":"two","args":{}}}`)
	c := &canned{answers: []string{signed, fine}}
	m := newModel(t, serve(t, c))
	req := &model.Request{Model: "gemini-3-pro", Messages: hi.Messages}
	res, err := m.Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := res.Message.ToolCalls
	if len(calls) != 2 || calls[0].ID != "given-1" || string(calls[0].Arguments) != `{"n":1.0}` || calls[1].ID != "call_2" {
		t.Fatalf("calls %+v", calls)
	}
	req.Messages = append(slices.Clone(req.Messages), res.Message, model.ToolResult(calls[0], json.RawMessage(`1`)), model.ToolResult(calls[1], json.RawMessage(`not JSON`)))
	if err := req.Validate(); err != nil {
		t.Fatal(err)
	}
	const replies = `{"role":"user","parts":[{"functionResponse":{"id":"given-1","name":"one","response":{"output":1}}},{"functionResponse":{"name":"two","response":{"output":"not JSON"}}}]}]}`
	const want = `{"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"text":"I look.","thoughtSignature":"dGV4dA=="},` +
		`{"functionCall":{"id":"given-1","name":"one","args":{"n":1.0}},"thoughtSignature":"Zmlyc3Q="},{"functionCall":{"name":"two","args":{}}}]},` + replies
	if _, err := m.Generate(t.Context(), req, nil); err != nil || !sameJSON(t, c.bodies[1], want) {
		t.Errorf("error %v\n got %s\nwant %s", err, c.bodies[1], want)
	}

	// Another model of the same making gets the word that stands for a signature.
	req.Model = "gemini-4-flash"
	foreign := strings.NewReplacer(`,"thoughtSignature":"dGV4dA=="`, "", "Zmlyc3Q=", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=", `"id":"given-1",`, "").Replace(want)
	if _, err := m.Generate(t.Context(), req, nil); err != nil || !sameJSON(t, c.bodies[2], foreign) {
		t.Errorf("error %v\n got %s\nwant %s", err, c.bodies[2], foreign)
	}
	req.Model = "gemini-2.5-flash"
	if _, err := m.Generate(t.Context(), req, nil); err != nil || strings.Contains(c.bodies[3], "ignature") {
		t.Errorf("error %v, body %s", err, c.bodies[3])
	}

	// A stream signs its text with an empty part at its end.
	c = &canned{answers: []string{stream(parts("", `{"text":"a "}`), parts("", `{"text":"b"}`), parts("STOP", `{"text":"","thoughtSignature":"dGV4dA=="}`)), fine}}
	m = newModel(t, serve(t, c))
	res, err = m.Generate(t.Context(), hi, func(model.Delta) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	m.Generate(t.Context(), &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), res.Message, model.User("more")}}, nil)
	if !strings.Contains(c.bodies[1], `{"text":"a b","thoughtSignature":"dGV4dA=="}`) {
		t.Errorf("sent back %s", c.bodies[1])
	}
}

func TestGeneratedIDsAreNewToTheConversation(t *testing.T) {
	t.Parallel()
	old := []model.ToolCall{{ID: "call_1", Name: "x", Arguments: json.RawMessage(`{}`)}, {ID: "call_3", Name: "x", Arguments: json.RawMessage(`{}`)}}
	req := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), model.Assistant("", old...), model.ToolResult(old[0], json.RawMessage(`1`)), model.ToolResult(old[1], json.RawMessage(`1`))}}
	c := &canned{answers: []string{parts("STOP", `{"functionCall":{"name":"x"}},{"functionCall":{"id":"call_1","name":"x"}},{"functionCall":{"id":"own","name":"x"}},{"functionCall":{"id":"own","name":"x"}}`)}}
	res, err := newModel(t, serve(t, c)).Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range res.Message.ToolCalls {
		got = append(got, c.ID)
	}
	if want := []string{"call_4", "call_5", "own", "call_6"}; !slices.Equal(got, want) {
		t.Errorf("ids %q, want %q", got, want)
	}
}

// The words are the API's.
func TestRefusalsAreLeftOutAndLearnt(t *testing.T) {
	t.Parallel()
	one := 1.0
	refuse := func(message string) string {
		b, _ := json.Marshal(map[string]any{"error": map[string]any{"code": 400, "status": "INVALID_ARGUMENT", "message": message}})
		return string(b)
	}
	schema := model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object"}`)}
	for name, c := range map[string]struct {
		req      *model.Request
		message  string
		dropped  []string
		gone     string
		remember bool
	}{
		"penalties": {&model.Request{Model: "m", Messages: hi.Messages, Params: model.Params{PresencePenalty: &one, FrequencyPenalty: &one}},
			"Penalty is not enabled for models/m", []string{"frequency_penalty", "presence_penalty"}, "Penalty", true},
		"JSON beside tools": {&model.Request{Model: "m", Messages: hi.Messages, Format: schema, Tools: []model.ToolDef{{Name: "x"}}},
			"Function calling with a response mime type: 'application/json' is unsupported", []string{"response_format"}, "responseMimeType", true},
		"a schema": {&model.Request{Model: "m", Messages: hi.Messages, Format: schema},
			"Invalid value at 'generation_config.response_json_schema': too deep", []string{"response_format"}, "responseJsonSchema", false},
	} {
		srv := &canned{status: 400, answers: []string{refuse(c.message), fine}}
		m := newModel(t, serve(t, srv))
		res, err := m.Generate(t.Context(), c.req, nil)
		if err != nil || !slices.Equal(res.Dropped, c.dropped) || len(srv.bodies) != 2 || !strings.Contains(srv.bodies[0], c.gone) || strings.Contains(srv.bodies[1], c.gone) {
			t.Errorf("%s: response %+v, error %v, asked %q", name, res, err, srv.bodies)
			continue
		}
		if _, err := m.Generate(t.Context(), c.req, nil); err != nil || strings.Contains(srv.bodies[2], c.gone) == c.remember {
			t.Errorf("%s: the next request was %s, error %v", name, srv.bodies[2], err)
		}
	}
	// Signatures that another endpoint does not know.
	c := &canned{status: 400, answers: []string{parts("STOP", `{"functionCall":{"name":"x"},"thoughtSignature":"Zmlyc3Q="}`), refuse("Corrupted thought signature."), fine}}
	m := newModel(t, serve(t, c))
	req := &model.Request{Model: "gemini-3-pro", Messages: hi.Messages}
	res, err := m.Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Messages = append(slices.Clone(req.Messages), res.Message, model.ToolResult(res.Message.ToolCalls[0], json.RawMessage(`1`)))
	if _, err := m.Generate(t.Context(), req, nil); err != nil || len(c.bodies) != 3 || strings.Contains(c.bodies[2], "Zmlyc3Q=") {
		t.Errorf("error %v after %q", err, c.bodies)
	}
	// What is the author's own is his to mend.
	c = &canned{status: 400, answers: []string{refuse("Penalty is not enabled")}}
	if _, err := newModel(t, serve(t, c)).Generate(t.Context(), hi, nil); !errors.Is(err, model.ErrBadRequest) || len(c.bodies) != 1 {
		t.Errorf("error %v after %d requests", err, len(c.bodies))
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(true, stream(parts("", `{"text":"a "},{"functionCall":{"name":"x","args":{"n":1.0}},"thoughtSignature":"AA=="}`), parts("STOP", `{"text":"b"}`)))
	f.Add(true, stream(`{"error":{"code":429,"message":"x","details":[{"@type":"google.rpc.RetryInfo","retryDelay":"1s"}]}}`))
	f.Add(true, ": c\r\n\r\ndata:{}\r\n\r\nx")
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
		var told strings.Builder
		var onDelta func(model.Delta) error
		if sse {
			onDelta = func(d model.Delta) error {
				if d.Text == "" {
					t.Error("an empty delta")
				}
				told.WriteString(d.Text)
				return nil
			}
		}
		res, err := m.Generate(t.Context(), hi, onDelta)
		if (res == nil) == (err == nil) {
			t.Fatalf("response %v and error %v", res, err)
		}
		if err != nil {
			var e *model.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v is not an *Error", err)
			}
			return
		}
		if sse && told.String() != res.Message.Content {
			t.Errorf("streamed %q, answered %q", told.String(), res.Message.Content)
		}
		next := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), res.Message}}
		if err := next.Validate(); err != nil {
			t.Errorf("the turn cannot go into a conversation: %v", err)
		}
		m.Generate(t.Context(), next, nil)
	})
}

package google_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// canned serves answers, repeats the last one, and records the requests.
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

var hi = &model.Request{Model: "m", Messages: []model.Message{model.User("hi")}}

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
	res, err := newModel(t, modeltest.Serve(t, c)).Generate(t.Context(), req, nil)
	if err != nil || len(res.Dropped) > 0 || res.Provider != "google" {
		t.Fatalf("response %+v, error %v", res, err)
	}
	if !modeltest.SameJSON(t, c.bodies[0], want) {
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
	res, err = newModel(t, modeltest.Serve(t, c), vertex).Generate(t.Context(), req, nil)
	if err != nil || !slices.Equal(res.Dropped, []string{"seed"}) || strings.Contains(c.bodies[0], "seed") || res.Provider != "vertex_ai" {
		t.Errorf("response %+v, error %v, body %s", res, err, c.bodies[0])
	}
	// A conversation with only system messages gets a user message.
	if _, err := newModel(t, modeltest.Serve(t, c)).Generate(t.Context(), &model.Request{Model: "m", Messages: []model.Message{model.System("say hi")}}, nil); err != nil || c.bodies[1] != `{"contents":[{"role":"user","parts":[{"text":"say hi"}]}]}` {
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
		{google.Config{Provider: google.Vertex, Project: "p", Location: "us", Token: secret}, "publishers/x/models/m", "https://aiplatform.us.rep.googleapis.com/v1beta1/projects/p/locations/us/publishers/x/models/m:generateContent"},
		{google.Config{Provider: google.Vertex, Project: "p", Token: secret}, "projects/q/locations/l/endpoints/7", "https://aiplatform.googleapis.com/v1beta1/projects/q/locations/l/endpoints/7:generateContent"},
		{google.Config{Provider: google.Vertex, Project: "p", Token: secret}, "models/m", "https://aiplatform.googleapis.com/v1beta1/projects/p/locations/global/models/m:generateContent"},
		{google.Config{Provider: google.Vertex, Key: secret}, "m", "https://aiplatform.googleapis.com/v1beta1/publishers/google/models/m:generateContent"},
		{google.Config{Key: secret, BaseURL: "http://h/a b/?"}, "a#b c", "http://h/a%20b/v1beta/models/a%23b%20c:generateContent"},
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
	for _, name := range []string{"", "a?b", "../x", "a&b", "a%zz"} {
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

// X-Server-Timeout has the time for which the client waits.
func TestServerTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90500*time.Millisecond)
		defer cancel()
		for _, c := range []struct {
			ctx           context.Context
			model, client time.Duration
			want          string
		}{
			{t.Context(), 0, 0, "600"},
			{t.Context(), time.Minute, 0, "60"},
			{t.Context(), time.Minute, time.Millisecond, "1"},
			{ctx, 0, 0, "91"},
		} {
			got := ""
			m, err := google.New(google.Config{RequestTimeout: c.model, HTTPClient: &http.Client{Timeout: c.client, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				got = r.Header.Get("X-Server-Timeout")
				return answer("application/json", fine, r), nil
			})}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Generate(c.ctx, hi, nil); err != nil || got != c.want {
				t.Errorf("the server is given %s s, want %s; error %v", got, c.want, err)
			}
		}
	})
}

func TestServersKeysAndAddresses(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]func(*google.Config){"google": func(*google.Config) {}, "vertex_ai": vertex} {
		f := modeltest.Frame{
			New: func(t *testing.T, url string, timeout time.Duration, key func(context.Context) (string, error)) model.Model {
				return newModel(t, url, func(c *google.Config) {
					if c.RequestTimeout = timeout; key != nil {
						c.Key = key
					}
				}, mend)
			},
			Double: double, Fine: fine, Path: "/v1beta", HasKey: hasKey,
		}
		if name == "google" {
			f.Sent = func(h http.Header) string { return h.Get("X-Goog-Api-Key") }
			f.Refused = func(url string) error {
				_, err := google.New(google.Config{BaseURL: url, Project: "p"})
				return err
			}
			f.Rest = []string{"google has none"}
		}
		t.Run(name, f.Run)
	}
}

func TestATokenThatCannotBeReadNow(t *testing.T) {
	t.Parallel()
	c := &canned{answers: []string{fine}}
	keyErr := fmt.Errorf("read it: %w", &model.Error{Kind: model.ErrUnavailable, Message: "the vault does not answer"})
	var failed *model.Error
	m := newModel(t, modeltest.Serve(t, c), vertex, func(cfg *google.Config) {
		cfg.Token = func(context.Context) (string, error) { return "", keyErr }
	})
	if _, err := m.Generate(t.Context(), hi, nil); !errors.As(err, &failed) || failed.Kind != model.ErrUnavailable || len(c.bodies) != 0 {
		t.Errorf("a token that cannot be read now: error %v after %d requests", err, len(c.bodies))
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
		if _, err := newModel(t, modeltest.Serve(t, c), mend).Generate(t.Context(), hi, nil); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.headers, c.uris); strings.Contains(got, "environment") {
			t.Errorf("sent %s", got)
		}
	}
}

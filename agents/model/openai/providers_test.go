package openai_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/model/openai"
)

// as makes a model of a provider, whose endpoint is at url.
func as(t *testing.T, provider, url string, mend ...func(*openai.Config)) *openai.Model {
	return newModel(t, url, append([]func(*openai.Config){func(c *openai.Config) {
		c.Provider = provider
		if provider == "azure_openai" {
			c.BaseURL = url
		}
	}}, mend...)...)
}

// everything is a request with every standard parameter.
func everything() *model.Request {
	f := func(v float64) *float64 { return &v }
	seed := int64(7)
	return &model.Request{
		Model:    "m",
		Messages: []model.Message{model.User("hi")},
		Params: model.Params{Temperature: f(1.75), MaxTokens: 7, TopP: f(0.25), FrequencyPenalty: f(-1.5), PresencePenalty: f(0.5),
			Stop: []string{"END"}, Seed: &seed},
	}
}

// Each provider gets the standard parameters under its own names and within its ranges; parameters
// that it lacks are left out and listed in Dropped.
func TestStandardParametersOfEachProvider(t *testing.T) {
	t.Parallel()
	const plain = `"temperature":1.75,"top_p":0.25,"frequency_penalty":-1.5,"presence_penalty":0.5,"stop":["END"],"seed":7`
	for provider, want := range map[string]struct {
		params  string
		dropped []string
	}{
		"openai":       {plain + `,"max_tokens":7`, nil}, // at another host: see TestMaxTokensHasItsNewNameAtOpenAI
		"azure_openai": {plain + `,"max_completion_tokens":7`, nil},
		"mistral":      {`"temperature":1.5,"top_p":0.25,"frequency_penalty":-1.5,"presence_penalty":0.5,"stop":["END"],"random_seed":7,"max_tokens":7`, []string{"temperature"}},
		"groq":         {`"temperature":1.75,"top_p":0.25,"stop":["END"],"seed":7,"max_completion_tokens":7`, []string{"frequency_penalty", "presence_penalty"}},
		"ollama":       {plain + `,"max_tokens":7`, nil},
		"huggingface":  {plain + `,"max_tokens":7`, nil},
		"together":     {plain + `,"max_tokens":7`, nil},
		"fireworks":    {plain + `,"max_tokens":7`, nil},
		"deepseek":     {`"temperature":1.75,"top_p":0.25,"frequency_penalty":-1.5,"presence_penalty":0.5,"stop":["END"],"max_tokens":7`, []string{"seed"}},
		"xai":          {plain + `,"max_completion_tokens":7`, nil},
		"openrouter":   {plain + `,"max_tokens":7`, nil},
		"cohere":       {`"temperature":1.75,"top_p":0.25,"frequency_penalty":0,"presence_penalty":0.5,"stop":["END"],"seed":7,"max_tokens":7`, []string{"frequency_penalty"}},
		"custom":       {plain + `,"max_tokens":7`, nil},
	} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			c := &canned{body: fine}
			res, err := as(t, provider, modeltest.Serve(t, c)).Generate(t.Context(), everything(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := `{"model":"m","messages":[{"role":"user","content":"hi"}],` + want.params + `}`; !modeltest.SameJSON(t, c.bodies[0], want) {
				t.Errorf("body\n got %s\nwant %s", c.bodies[0], want)
			}
			if !reflect.DeepEqual(res.Dropped, want.dropped) {
				t.Errorf("dropped %q, want %q", res.Dropped, want.dropped)
			}
			if wantName := strings.TrimPrefix(provider, "custom"); res.Provider != wantName {
				t.Errorf("provider %q, want %q", res.Provider, wantName)
			}
		})
	}
	for _, p := range openai.Providers() {
		if got, ok := openai.LookupProvider(p.Name); !ok || !reflect.DeepEqual(got, p) {
			t.Errorf("LookupProvider(%q) = %+v, %v", p.Name, got, ok)
		}
	}
}

// An extended parameter replaces a standard one, which is then not listed in Dropped.
func TestExtendedWinsOverWhatAProviderLacks(t *testing.T) {
	t.Parallel()
	for provider, c := range map[string]struct{ extended, gone string }{
		"groq":         {`{"frequency_penalty":1,"presence_penalty":1}`, ""},
		"deepseek":     {`{"seed":3}`, ""},
		"azure_openai": {`{"max_tokens":9}`, `"max_completion_tokens"`},
		"mistral":      {`{"random_seed":9,"temperature":1.9}`, `"random_seed":7`},
	} {
		srv := &canned{body: fine}
		req := everything()
		req.Params.Extended = json.RawMessage(c.extended)
		res, err := as(t, provider, modeltest.Serve(t, srv)).Generate(t.Context(), req, nil)
		if err != nil || len(res.Dropped) > 0 {
			t.Errorf("%s: dropped %q, error %v", provider, res.Dropped, err)
		}
		if want := strings.Trim(c.extended, "{}"); !strings.Contains(srv.bodies[0], strings.Split(want, ",")[0]) || c.gone != "" && strings.Contains(srv.bodies[0], c.gone) {
			t.Errorf("%s: body %s, want %s", provider, srv.bodies[0], want)
		}
	}
}

func TestProvidersConform(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"mistral", "groq", "deepseek", "openrouter", "cohere"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			modeltest.Run(t, func(t *testing.T, turns ...modeltest.Turn) model.Model {
				return as(t, provider, doubleOf(t, provider == "mistral" || provider == "cohere", turns...).URL)
			})
		})
	}
}

func TestStreamUsageIsAskedForWhereItIsKnown(t *testing.T) {
	t.Parallel()
	for provider, want := range map[string]bool{"mistral": false, "cohere": false, "groq": true, "ollama": true, "custom": true} {
		c := &canned{body: fine}
		if _, err := as(t, provider, modeltest.Serve(t, c)).Generate(t.Context(), hi, func(model.Delta) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(c.bodies[0], `"stream_options":{"include_usage":true}`); got != want {
			t.Errorf("%s: %s", provider, c.bodies[0])
		}
	}
}

func TestAzureTargets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, version, header string
		want, wantHeader      string
	}{
		{"", "", "", "/openai/deployments/my-gpt.4/chat/completions?api-version=2024-10-21", "Api-Key"},
		{"/", "2025-01-01-preview", "", "/openai/deployments/my-gpt.4/chat/completions?api-version=2025-01-01-preview", "Api-Key"},
		{"/openai", "", "", "/openai/deployments/my-gpt.4/chat/completions?api-version=2024-10-21", "Api-Key"},
		{"/openai/deployments/other", "", "", "/openai/deployments/other/chat/completions?api-version=2024-10-21", "Api-Key"},
		{"/openai/v1/", "2025-01-01-preview", "", "/openai/v1/chat/completions", "Api-Key"},
		{"/gateway/openai/v1", "", "Authorization", "/gateway/openai/v1/chat/completions", "Authorization"},
	} {
		var uri string
		var header http.Header
		url := modeltest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			uri, header = r.RequestURI, r.Header
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, fine)
		}))
		m := as(t, "azure_openai", url, func(cfg *openai.Config) {
			cfg.BaseURL, cfg.APIVersion, cfg.KeyHeader = url+c.path, c.version, c.header
		})
		if _, err := m.Generate(t.Context(), &model.Request{Model: "my-gpt.4", Messages: hi.Messages}, nil); err != nil {
			t.Fatal(err)
		}
		if uri != c.want {
			t.Errorf("%s: asked at %s, want %s", c.path, uri, c.want)
		}
		want := testKey
		if c.wantHeader == "Authorization" {
			want = "Bearer " + testKey
		}
		if header.Get(c.wantHeader) != want || (header.Get("Authorization") != "") != (c.wantHeader == "Authorization") || (header.Get("Api-Key") != "") != (c.wantHeader == "Api-Key") {
			t.Errorf("%s: headers %v, want the key in %s alone", c.path, header, c.wantHeader)
		}
	}
}

func TestAzureDeploymentIsAName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "a/b", "a?b", "a%2fb", "a b"} {
		c := &canned{body: fine}
		_, err := as(t, "azure_openai", modeltest.Serve(t, c)).Generate(t.Context(), &model.Request{Model: name, Messages: hi.Messages}, nil)
		if !errors.Is(err, model.ErrBadRequest) || len(c.bodies) != 0 {
			t.Errorf("%q: error %v after %d requests", name, err, len(c.bodies))
		}
	}
}

func TestAzureKeyStaysAtItsOrigin(t *testing.T) {
	t.Parallel()
	elsewhere := &canned{body: fine}
	url := modeltest.Serve(t, elsewhere)
	m := as(t, "azure_openai", modeltest.Serve(t, http.RedirectHandler(url+"/openai/v1/chat/completions", http.StatusTemporaryRedirect)))
	if _, err := m.Generate(t.Context(), hi, nil); !errors.Is(err, model.ErrUnavailable) || hasKey(err.Error()) || len(elsewhere.bodies) != 0 {
		t.Errorf("error %v, elsewhere %v", err, elsewhere.headers)
	}
}

func TestEndpointsOfProviders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ provider, base, want string }{
		{"", "", "https://api.openai.com/v1/chat/completions"},
		{"mistral", "", "https://api.mistral.ai/v1/chat/completions"},
		{"groq", "", "https://api.groq.com/openai/v1/chat/completions"},
		{"ollama", "", "http://localhost:11434/v1/chat/completions"},
		{"huggingface", "", "https://router.huggingface.co/v1/chat/completions"},
		{"together", "", "https://api.together.xyz/v1/chat/completions"},
		{"fireworks", "", "https://api.fireworks.ai/inference/v1/chat/completions"},
		{"deepseek", "", "https://api.deepseek.com/v1/chat/completions"},
		{"xai", "", "https://api.x.ai/v1/chat/completions"},
		{"openrouter", "", "https://openrouter.ai/api/v1/chat/completions"},
		{"cohere", "", "https://api.cohere.ai/compatibility/v1/chat/completions"},
		{"custom", "http://gateway/x/v1", "http://gateway/x/v1/chat/completions"},
		{"azure_openai", "https://r.openai.azure.com", "https://r.openai.azure.com/openai/deployments/m/chat/completions?api-version=2024-10-21"},
	} {
		var got string
		m, err := openai.New(openai.Config{Provider: c.provider, BaseURL: c.base, HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			got = r.URL.String()
			return modeltest.Body{Media: "application/json", Text: fine}.RoundTrip(r)
		})}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Generate(t.Context(), hi, nil); err != nil || got != c.want {
			t.Errorf("%s: asked %s, want %s; error %v", c.provider, got, c.want, err)
		}
	}
	for provider, want := range map[string]string{"azure_openai": "must be given", "custom": "must be given", "anthropic": "does not speak this protocol", "no such": "does not speak"} {
		if _, err := openai.New(openai.Config{Provider: provider}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", provider, err, want)
		}
	}
	// Without a provider, the host of the base URL determines it.
	m, err := openai.New(openai.Config{BaseURL: "https://api.mistral.ai/v1", HTTPClient: &http.Client{Transport: modeltest.Body{Media: "application/json", Text: fine}}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := m.Generate(t.Context(), hi, nil); err != nil || res.Provider != "mistral" {
		t.Errorf("response %+v, error %v, want mistral's", res, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestMistralGetsCallIDsOfItsForm(t *testing.T) {
	t.Parallel()
	a, b := model.ToolCall{ID: "toolu_01A09q90qw90lq917835lq9", Name: "x", Arguments: json.RawMessage(`{}`)}, model.ToolCall{ID: "D681PevKs", Name: "x", Arguments: json.RawMessage(`{}`)}
	srv := &canned{body: fine}
	req := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), model.Assistant("", a, b), model.ToolResult(a, json.RawMessage(`1`)), model.ToolResult(b, json.RawMessage(`2`))}}
	if _, err := as(t, "mistral", modeltest.Serve(t, srv)).Generate(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	var got wireRequest
	if err := json.Unmarshal([]byte(srv.bodies[0]), &got); err != nil {
		t.Fatal(err)
	}
	ids := []string{got.Messages[1].ToolCalls[0].ID, got.Messages[1].ToolCalls[1].ID}
	if len(ids[0]) != 9 || strings.ContainsAny(ids[0], "_-") || ids[1] != "D681PevKs" || got.Messages[2].ToolCallID != ids[0] || got.Messages[3].ToolCallID != ids[1] {
		t.Errorf("calls %q, answers to %q and %q", ids, got.Messages[2].ToolCallID, got.Messages[3].ToolCallID)
	}
}

// Some servers number the calls of each turn anew, and some send no ids. Anthropic's API, to which
// the conversation may go next, refuses a conversation with duplicate ids.
func TestCallIDsAreNewToTheConversation(t *testing.T) {
	t.Parallel()
	old := model.ToolCall{ID: "call_1", Name: "x", Arguments: json.RawMessage(`{}`)}
	req := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), model.Assistant("", old), model.ToolResult(old, json.RawMessage(`1`))}}
	for _, c := range []struct{ calls, want string }{
		{`{"function":{"name":"x"}}`, "call_2"},
		{`{"id":"call_1","function":{"name":"x"}}`, "call_2"},
		{`{"id":"own","function":{"name":"x"}}`, "own"},
	} {
		srv := &canned{body: `{"choices":[{"message":{"role":"assistant","tool_calls":[` + c.calls + `]},"finish_reason":"tool_calls"}]}`}
		res, err := as(t, "custom", modeltest.Serve(t, srv)).Generate(t.Context(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Message.ToolCalls[0].ID; got != c.want {
			t.Errorf("%s has the id %q, want %q", c.calls, got, c.want)
		}
	}
}

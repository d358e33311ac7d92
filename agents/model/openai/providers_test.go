package openai_test

import (
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

// Each provider gets the standard parameters under its own names and within
// its ranges; what it lacks is left out, and told.
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
			res, err := as(t, provider, serve(t, c)).Generate(t.Context(), everything(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := `{"model":"m","messages":[{"role":"user","content":"hi"}],` + want.params + `}`; !sameMembers(t, c.bodies[0], want) {
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
	if p, _ := openai.LookupProvider("groq"); !slices.Equal(p.Lacks(), []string{"frequency_penalty", "presence_penalty"}) {
		t.Errorf("groq lacks %q", p.Lacks())
	}
}

// An extended parameter wins over a standard one, and then nothing was dropped.
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
		res, err := as(t, provider, serve(t, srv)).Generate(t.Context(), req, nil)
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
		if _, err := as(t, provider, serve(t, c)).Generate(t.Context(), hi, func(model.Delta) error { return nil }); err != nil {
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
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		_, err := as(t, "azure_openai", serve(t, c)).Generate(t.Context(), &model.Request{Model: name, Messages: hi.Messages}, nil)
		if !errors.Is(err, model.ErrBadRequest) || len(c.bodies) != 0 {
			t.Errorf("%q: error %v after %d requests", name, err, len(c.bodies))
		}
	}
}

func TestAzureKeyStaysAtItsOrigin(t *testing.T) {
	t.Parallel()
	elsewhere := &canned{body: fine}
	url := serve(t, elsewhere)
	m := as(t, "azure_openai", serve(t, http.RedirectHandler(url+"/openai/v1/chat/completions", http.StatusTemporaryRedirect)))
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
			return body{"application/json", fine}.RoundTrip(r)
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
	// A base URL without a provider is whose host it has.
	m, err := openai.New(openai.Config{BaseURL: "https://api.mistral.ai/v1", HTTPClient: &http.Client{Transport: body{"application/json", fine}}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := m.Generate(t.Context(), hi, nil); err != nil || res.Provider != "mistral" {
		t.Errorf("response %+v, error %v, want mistral's", res, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// picky refuses members of a request's body, each in words of its own, and
// answers what is left.
type picky struct {
	refuse map[string]string // member → answer's body
	status int
	mu     sync.Mutex
	bodies []string
}

func (p *picky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.bodies = append(p.bodies, string(raw))
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var members map[string]json.RawMessage
	json.Unmarshal(raw, &members)
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		answer, ok := p.refuse[name]
		if !ok {
			answer, ok = p.refuse[name+"="+string(members[name])]
		}
		if ok {
			w.WriteHeader(p.status)
			io.WriteString(w, answer)
			return
		}
	}
	io.WriteString(w, fine)
}

// The words are those that OpenAI, Mistral, xAI and servers in Python have.
func TestRefusedParametersAreLeftOutAndLearned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		provider string
		status   int
		refuse   map[string]string
		dropped  []string
		first    int // requests of the first call
	}{
		"a reasoning model of OpenAI": {"custom", 400, map[string]string{
			"temperature": `{"error":{"message":"Unsupported value: 'temperature' does not support 1.75 with this model. Only the default (1) value is supported.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}`,
			"stop":        `{"error":{"message":"Unsupported parameter: 'stop' is not supported with this model.","type":"invalid_request_error","param":"stop","code":"unsupported_parameter"}}`,
			"max_tokens":  `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`,
		}, []string{"stop", "temperature"}, 4},
		"an old deployment": {"azure_openai", 400, map[string]string{
			"max_completion_tokens": `{"error":{"message":"Unrecognized request argument supplied: max_completion_tokens","type":"invalid_request_error","param":null,"code":null}}`,
		}, nil, 2},
		"no limit at all": {"custom", 400, map[string]string{
			"max_tokens":            `{"error":{"message":"max_tokens is not supported"}}`,
			"max_completion_tokens": `{"error":{"message":"max_completion_tokens is not supported"}}`,
		}, []string{"max_tokens"}, 3},
		"a validator": {"custom", 422, map[string]string{
			"seed": `{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted","input":7}]}`,
		}, []string{"seed"}, 2},
		"a validator behind a proxy": {"custom", 422, map[string]string{
			"seed": `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted"}]},"type":"invalid_request_error"}`,
		}, []string{"seed"}, 2},
		"a reasoning model of xAI": {"xai", 400, map[string]string{
			"presence_penalty":  `{"code":"Client specified an invalid argument","error":"Argument not supported on this model: presencePenalty"}`,
			"frequency_penalty": `{"code":"Client specified an invalid argument","error":"Argument not supported on this model: frequencyPenalty"}`,
		}, []string{"frequency_penalty", "presence_penalty"}, 3},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			srv := &picky{refuse: c.refuse, status: c.status}
			m := as(t, c.provider, serve(t, srv))
			for i, want := range []int{c.first, c.first + 1} { // the second call knows
				res, err := m.Generate(t.Context(), everything(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(res.Dropped, c.dropped) || len(srv.bodies) != want {
					t.Errorf("call %d: dropped %q after %d requests, want %q after %d", i, res.Dropped, len(srv.bodies), c.dropped, want)
				}
			}
			other := everything()
			other.Model = "another"
			if _, err := m.Generate(t.Context(), other, nil); err != nil || len(srv.bodies) != 2*c.first+1 {
				t.Errorf("another model: %d requests in all, want %d; error %v", len(srv.bodies), 2*c.first+1, err)
			}
		})
	}
}

func TestRefusalsThatAreTheAuthorsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ extended, refused, answer string }{
		"an extended parameter": {`{"temperature":1.75}`, "temperature", `{"error":{"message":"Unsupported value","param":"temperature","code":"unsupported_value"}}`},
		"an unknown one":        {`{"vendor_knob":1}`, "vendor_knob", `{"error":{"message":"Unrecognized request argument supplied: vendor_knob"}}`},
		"a value":               {`{}`, "temperature", `{"error":{"message":"temperature must be at most 1","param":"temperature","code":"invalid_value"}}`},
		"the messages":          {`{}`, "messages", `{"error":{"message":"role tool is not supported","param":"messages.[1].role","code":"unsupported_value"}}`},
	} {
		srv := &picky{refuse: map[string]string{c.refused: c.answer}, status: 400}
		req := everything()
		req.Params.Extended = json.RawMessage(c.extended)
		if _, err := as(t, "custom", serve(t, srv)).Generate(t.Context(), req, nil); !errors.Is(err, model.ErrBadRequest) || len(srv.bodies) != 1 {
			t.Errorf("%s: error %v after %d requests, want %v after one", name, err, len(srv.bodies), model.ErrBadRequest)
		}
	}
}

func TestRefusalsAreBoundedAndSafeTogether(t *testing.T) {
	t.Parallel()
	refuse := map[string]string{"messages": `{"error":{"message":"temperature top_p stop seed max_tokens max_completion_tokens presence_penalty frequency_penalty: not supported"}}`}
	srv := &picky{refuse: refuse, status: 400}
	if _, err := as(t, "custom", serve(t, srv)).Generate(t.Context(), everything(), nil); !errors.Is(err, model.ErrBadRequest) || len(srv.bodies) != 7 {
		t.Errorf("error %v after %d requests, want %v after seven", err, len(srv.bodies), model.ErrBadRequest)
	}

	srv = &picky{refuse: map[string]string{
		"max_tokens": `{"error":{"message":"max_tokens is not supported"}}`,
	}, status: 400}
	m := as(t, "custom", serve(t, srv))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			res, err := m.Generate(t.Context(), everything(), nil)
			if err != nil || len(res.Dropped) > 0 { // all of them find the other name, none drops it
				t.Errorf("dropped %v, error %v", res, err)
			}
		})
	}
	wg.Wait()
}

var closed = json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`)

func TestStructuredOutputOfEachProvider(t *testing.T) {
	t.Parallel()
	open := json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}}}`)
	native := func(schema json.RawMessage, strict string) string {
		return `{"type":"json_schema","json_schema":{"name":"output","schema":` + string(schema) + strict + `}}`
	}
	const object = `{"type":"json_object"}`
	for _, c := range []struct {
		provider string
		format   model.Format
		tools    bool
		want     string
		dropped  []string
	}{
		{"azure_openai", model.Format{Type: model.FormatJSONSchema, Schema: closed}, false, native(closed, `,"strict":true`), nil},
		{"azure_openai", model.Format{Type: model.FormatJSONSchema, Schema: open}, true, native(open, ""), nil},
		{"mistral", model.Format{Type: model.FormatJSONSchema, Schema: closed}, true, native(closed, `,"strict":true`), nil},
		{"ollama", model.Format{Type: model.FormatJSONSchema, Schema: closed}, false, native(closed, ""), nil},
		{"ollama", model.Format{Type: model.FormatJSONSchema, Schema: open, Strict: true}, false, native(open, `,"strict":true`), nil},
		{"deepseek", model.Format{Type: model.FormatJSONSchema, Schema: closed}, false, object, []string{"response_format"}},
		{"deepseek", model.Format{Type: model.FormatJSON}, false, object, nil},
		{"groq", model.Format{Type: model.FormatJSONSchema, Schema: closed}, false, native(closed, ""), nil},
		{"groq", model.Format{Type: model.FormatJSONSchema, Schema: closed}, true, "", []string{"response_format"}},
		{"cohere", model.Format{Type: model.FormatJSON}, true, "", []string{"response_format"}},
		{"custom", model.Format{Type: model.FormatText}, true, "", nil},
	} {
		srv := &canned{body: fine}
		req := &model.Request{Model: "m", Messages: hi.Messages, Format: c.format}
		if c.tools {
			req.Tools = []model.ToolDef{{Name: "look"}}
		}
		var told string
		res, err := as(t, c.provider, serve(t, srv)).Generate(t.Context(), req, func(d model.Delta) error { told += d.Text; return nil })
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			ResponseFormat json.RawMessage `json:"response_format"`
			Stream         bool
		}
		if err := json.Unmarshal([]byte(srv.bodies[0]), &got); err != nil {
			t.Fatal(err)
		}
		same := string(got.ResponseFormat) == c.want || c.want != "" && got.ResponseFormat != nil && sameMembers(t, string(got.ResponseFormat), c.want)
		if !same || !reflect.DeepEqual(res.Dropped, c.dropped) {
			t.Errorf("%s: response_format %s, dropped %q, want %s and %q", c.provider, got.ResponseFormat, res.Dropped, c.want, c.dropped)
		}
		if whole := c.provider == "groq" && c.want != ""; got.Stream == whole || told != "ok" {
			t.Errorf("%s: stream %v, told %q", c.provider, got.Stream, told)
		}
	}
}

// Where a model does not know schemas, JSON mode is what is left, and where it
// does not know that, the prompt is.
func TestStructuredOutputThatIsRefused(t *testing.T) {
	t.Parallel()
	answer := `{"error":{"message":"This model does not support response format json_schema.","type":"invalid_request_error"}}`
	srv := &refusesFormat{words: map[string]string{"json_schema": answer}}
	req := &model.Request{Model: "m", Messages: hi.Messages, Format: model.Format{Type: model.FormatJSONSchema, Schema: closed}}
	res, err := as(t, "groq", serve(t, srv)).Generate(t.Context(), req, nil)
	if err != nil || !slices.Equal(res.Dropped, []string{"response_format"}) || !slices.Equal(srv.asked, []string{"json_schema", "json_object"}) {
		t.Errorf("asked %q, response %+v, error %v", srv.asked, res, err)
	}
	srv = &refusesFormat{words: map[string]string{"json_schema": answer, "json_object": `{"error":"response_format is not supported"}`}}
	res, err = as(t, "custom", serve(t, srv)).Generate(t.Context(), req, nil)
	if err != nil || !slices.Equal(res.Dropped, []string{"response_format"}) || !slices.Equal(srv.asked, []string{"json_schema", "json_object", ""}) {
		t.Errorf("asked %q, response %+v, error %v", srv.asked, res, err)
	}
}

type refusesFormat struct {
	words map[string]string
	asked []string
}

func (s *refusesFormat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ResponseFormat struct{ Type string } `json:"response_format"`
	}
	json.NewDecoder(r.Body).Decode(&req)
	s.asked = append(s.asked, req.ResponseFormat.Type)
	w.Header().Set("Content-Type", "application/json")
	if words, ok := s.words[req.ResponseFormat.Type]; ok {
		w.WriteHeader(400)
		io.WriteString(w, words)
		return
	}
	io.WriteString(w, fine)
}

func TestMistralGetsCallIDsOfItsForm(t *testing.T) {
	t.Parallel()
	a, b := model.ToolCall{ID: "toolu_01A09q90qw90lq917835lq9", Name: "x", Arguments: json.RawMessage(`{}`)}, model.ToolCall{ID: "D681PevKs", Name: "x", Arguments: json.RawMessage(`{}`)}
	srv := &canned{body: fine}
	req := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), model.Assistant("", a, b), model.ToolResult(a, json.RawMessage(`1`)), model.ToolResult(b, json.RawMessage(`2`))}}
	if _, err := as(t, "mistral", serve(t, srv)).Generate(t.Context(), req, nil); err != nil {
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

// What a model thought before it called tools goes back to its provider, and to
// no other.
func TestThoughtsGoBackToTheirProvider(t *testing.T) {
	t.Parallel()
	const js = "application/json"
	whole := `{"model":"m","choices":[{"message":{"content":null,"reasoning_content":"hm, \"look\"","reasoning_details":[{"type":"reasoning.encrypted","data":"e=="}],"tool_calls":[{"id":"a","type":"function","function":{"name":"one","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`
	stream := streamOf(
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":"hm, "}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"\"look\"","reasoning_details":[]}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":null,"reasoning_details":[{"type":"reasoning.encrypted","data":"e=="}]}}]}`,
		callDelta(`"index":0,`, "a", "one", "{}"), finish("tool_calls"), "[DONE]")
	for media, text := range map[string]string{js: whole, "text/event-stream": stream} {
		for provider, want := range map[string]string{
			"deepseek":   `"reasoning_content":"hm, \"look\""`,
			"openrouter": `"reasoning_details":[{"type":"reasoning.encrypted","data":"e=="}]`,
			"custom":     "",
		} {
			srv := &canned{header: map[string]string{"Content-Type": media}, body: text}
			m := as(t, provider, serve(t, srv))
			res, err := m.Generate(t.Context(), hi, func(d model.Delta) error { return fmt.Errorf("told %q", d.Text) })
			if err != nil {
				t.Fatal(err)
			}
			if (len(res.Message.Provider) > 0) != (want != "") || res.Message.Content != "" {
				t.Errorf("%s, %s: message %+v", provider, media, res.Message)
			}
			next := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), res.Message, model.ToolResult(res.Message.ToolCalls[0], json.RawMessage(`1`))}}
			if err := next.Validate(); err != nil {
				t.Fatal(err)
			}
			m.Generate(t.Context(), next, nil)
			if got := srv.bodies[1]; want != "" && !strings.Contains(got, want) || strings.Contains(got, "reasoning") != (want != "") {
				t.Errorf("%s, %s: sent back %s, want %s", provider, media, got, want)
			}
			other := &canned{body: fine}
			if _, err := as(t, "mistral", serve(t, other)).Generate(t.Context(), next, nil); err != nil || strings.Contains(other.bodies[0], "reasoning") {
				t.Errorf("another provider was sent %v, error %v", other.bodies, err)
			}
			if _, err := as(t, "deepseek", serve(t, other)).Generate(t.Context(), next, nil); err != nil || !strings.Contains(other.bodies[1], `"reasoning_content":"`) {
				t.Errorf("deepseek was sent %v, error %v", other.bodies, err)
			}
		}
	}
}

func TestUsageInAllItsForms(t *testing.T) {
	t.Parallel()
	for usage, want := range map[string]model.Usage{
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14}`:                                                                                    {InputTokens: 10, OutputTokens: 4},
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":8,"cache_write_tokens":2}}`:                 {InputTokens: 10, OutputTokens: 4, CachedInputTokens: 8, CacheWriteTokens: 2},
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":2}`:                           {InputTokens: 10, OutputTokens: 4, CachedInputTokens: 8},
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"completion_tokens_details":{"reasoning_tokens":3}}`:                                 {InputTokens: 10, OutputTokens: 4},
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":44,"completion_tokens_details":{"reasoning_tokens":30}}`:                                {InputTokens: 10, OutputTokens: 34},
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"cost":0.01,"prompt_tokens_details":null,"completion_tokens_details":null,"x":[{}]}`: {InputTokens: 10, OutputTokens: 4},
	} {
		for _, answer := range []*canned{
			{body: `{"model":"m","choices":[{"message":{"content":"ok"},"finish_reason":"stop"}],"usage":` + usage + `}`},
			{header: map[string]string{"Content-Type": "text/event-stream"}, body: streamOf(say("ok"), finish("stop"), `{"choices":[],"usage":`+usage+`}`, "[DONE]")},
		} {
			res, err := newModel(t, serve(t, answer)).Generate(t.Context(), hi, nil)
			if err != nil || res.Usage != want {
				t.Errorf("%s: %+v, error %v, want %+v", usage, res, err, want)
			}
		}
	}
}

func TestContentInParts(t *testing.T) {
	t.Parallel()
	const parts = `[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"o"},{"type":"text","text":"k"}]`
	for _, answer := range []*canned{
		{body: `{"model":"m","choices":[{"message":{"content":` + parts + `},"finish_reason":"stop"}]}`},
		{header: map[string]string{"Content-Type": "text/event-stream"}, body: streamOf(`{"choices":[{"index":0,"delta":{"content":`+parts+`}}]}`, finish("stop"), "[DONE]")},
	} {
		res, err := newModel(t, serve(t, answer)).Generate(t.Context(), hi, nil)
		if err != nil || res.Message.Content != "ok" {
			t.Errorf("response %+v, error %v, want ok", res, err)
		}
	}
}

func TestTurnsThatBreakOffWithAReason(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"error", "insufficient_system_resource"} {
		srv := &canned{header: map[string]string{"Content-Type": "text/event-stream"}, body: streamOf(say("it began"), finish(reason), "[DONE]")}
		if res, err := newModel(t, serve(t, srv)).Generate(t.Context(), hi, func(model.Delta) error { return nil }); res != nil || !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("%s: response %+v, error %v", reason, res, err)
		}
	}
	srv := httptest.NewServer(&canned{status: 402, body: `{"error":{"message":"Insufficient Balance"}}`})
	t.Cleanup(srv.Close)
	if _, err := newModel(t, srv.URL).Generate(t.Context(), hi, nil); !errors.Is(err, model.ErrRateLimited) {
		t.Errorf("402: error %v, want %v, so that another provider is asked", err, model.ErrRateLimited)
	}
}

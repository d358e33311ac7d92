package adapters

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/secret"
)

func definition(t *testing.T, modelBlock string) *aaif.Definition {
	t.Helper()
	return document(t, modelBlock).Definition()
}

func document(t *testing.T, modelBlock string) *aaif.Document {
	t.Helper()
	doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","agent":{"name":"Test Agent","goal":"Pass.","model":{`+modelBlock+`}}}`), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func hello() *model.Request {
	return &model.Request{Model: "m", Messages: []model.Message{model.User("hi")}}
}

const completion = `{"id":"1","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`

// A key in a well-known variable is sent to its provider's own endpoint, or to the operator's, but
// not to an endpoint that a document names.
func TestModelKeyGoesWhereItBelongs(t *testing.T) {
	t.Parallel()
	secret := func(name string) (string, bool) { return "secret-of-" + name, !strings.HasPrefix(name, "UNSET") }
	for name, c := range map[string]struct {
		model   string // of the document, without its base_url
		config  string // of the operator; URL is the server's
		keyName string
		auth    string
		notice  bool
	}{
		"openai's name, foreign host": {model: `"provider": "openai"`, notice: true},
		"custom in openai's clothes":  {model: `"provider": "custom", "provider_id": "OpenAI"`, notice: true},
		"custom in google's clothes":  {model: `"provider": "custom", "provider_id": "gemini"`, notice: true},
		"azure's key, the document's": {model: `"provider": "azure_openai"`, notice: true},
		"the operator says so":        {model: `"provider": "openai"`, keyName: "OPENAI_API_KEY", auth: "Bearer secret-of-OPENAI_API_KEY"},
		"custom, by its own name":     {model: `"provider": "custom", "provider_id": "lite-llm"`, notice: true},
		"and the variable is allowed": {model: `"provider": "custom", "provider_id": "lite-llm"`, config: `{"outbound": {"allow": ["URL"]}, "secrets": {"env": ["LITE_LLM_*"]}}`, auth: "Bearer secret-of-LITE_LLM_API_KEY"},
		"custom, key not set":         {model: `"provider": "custom", "provider_id": "unset"`},
		"custom without a name":       {model: `"provider": "custom", "provider_id": "custom"`},
		"the operator's endpoint":     {model: `"provider": "openai"`, config: `{"models": {"providers": {"openai": {"base_url": "URL/v1"}}}}`, auth: "Bearer secret-of-OPENAI_API_KEY"},
		"the operator's variable":     {model: `"provider": "openai"`, config: `{"models": {"providers": {"openai": {"base_url": "URL/v1", "key": {"env": "MINE"}}}}}`, auth: "Bearer secret-of-MINE"},
		"the operator's other variable": {model: `"provider": "custom", "provider_id": "lab"`, config: `{"models": {"providers": {"lab": {"base_url": "URL/v1", "key": {"env": "LAB"}}}}}`,
			auth: "Bearer secret-of-LAB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			auth := make(chan string, 1)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				auth <- r.Header.Get("Authorization") + r.Header.Get("Api-Key")
				w.Header().Set("Content-Type", "application/json")
				w.Write([]byte(completion))
			}))
			t.Cleanup(srv.Close)
			if c.config == "" {
				c.config = `{"outbound": {"allow": ["URL"]}}`
			}
			s := newSet(t, strings.ReplaceAll(c.config, "URL", srv.URL), nil)
			def := definition(t, c.model+`, "preferred": "m", "base_url": "`+srv.URL+`/v1"`)
			m, notices, err := s.Model(def, agents.Options{Secret: secret, KeyName: c.keyName})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(notices) > 0; got != c.notice {
				t.Errorf("notices %v", notices)
			}
			if res, err := m.Generate(t.Context(), hello(), nil); err != nil || res.Message.Content != "hello" {
				t.Errorf("got %+v, %v", res, err)
			}
			if got := <-auth; got != c.auth {
				t.Errorf("Authorization %q, want %q", got, c.auth)
			}
		})
	}
}

// Finding 12 of the security review: a document chose by its provider_id which
// variable of the worker was sent to its base_url. The operator's configuration
// names the variable and the host; "*" names no host.
func TestCustomKeyNeedsTheOperator(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config, keyName string
		key             string // that is sent
		notice          string // part of it
	}{
		"nothing is said":         {notice: `the key in STRIPE_API_KEY is not sent to the document's base_url, https://models.example: env_var STRIPE_API_KEY: it is not allowed here`},
		"the host is allowed":     {config: `{"outbound": {"allow": ["models.example"]}}`, notice: "the operator has not allowed documents to read this variable"},
		"all hosts are allowed":   {config: `{"outbound": {"allow": ["*"]}}`, notice: "the operator has not allowed documents to read this variable"},
		"the variable is allowed": {config: `{"secrets": {"env": ["STRIPE_API_KEY"]}}`, notice: `models.example is not allowed: to allow it, add "models.example" to outbound.allow`},
		"and all hosts":           {config: `{"outbound": {"allow": ["*"]}, "secrets": {"env": ["STRIPE_API_KEY"]}}`, notice: `add "models.example" to outbound.allow`},
		"and another host":        {config: `{"outbound": {"allow": ["other.example"]}, "secrets": {"env": ["STRIPE_API_KEY"]}}`, notice: "not sent"},
		"and the host":            {config: `{"outbound": {"allow": ["*", "models.example"]}, "secrets": {"env": ["STRIPE_API_KEY"]}}`, key: "STRIPE_API_KEY", notice: "is sent to https://models.example"},
		"the key is named":        {keyName: "STRIPE_API_KEY", key: "STRIPE_API_KEY"},
		"the key is configured":   {config: `{"models": {"providers": {"stripe": {"key": {"env": "MINE"}}}}}`, key: "MINE"},
		"the place is configured": {config: `{"models": {"providers": {"stripe": {"base_url": "https://models.example/v1"}}}}`, key: "STRIPE_API_KEY"},
	} {
		var sent string
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			sent = r.Header.Get("Authorization")
			rec := httptest.NewRecorder()
			rec.Header().Set("Content-Type", "application/json")
			rec.WriteString(completion)
			return rec.Result(), nil
		})}
		def := definition(t, `"provider": "custom", "provider_id": "stripe", "preferred": "m", "base_url": "https://models.example/v1"`)
		m, notices, err := newSet(t, c.config, nil).Model(def, agents.Options{Secret: env("STRIPE_API_KEY", "STRIPE_API_KEY", "MINE", "MINE"), KeyName: c.keyName, HTTPClient: client})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := m.Generate(t.Context(), hello(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.TrimPrefix(sent, "Bearer "); got != c.key {
			t.Errorf("%s: the key %q was sent, want %q", name, got, c.key)
		}
		switch {
		case c.notice == "" && len(notices) == 0:
		case c.notice == "" || len(notices) != 1 || !strings.Contains(notices[0].Message, c.notice) || notices[0].Rule != agents.RuleModelKey:
			t.Errorf("%s: notices %v, want %q", name, notices, c.notice)
		}
	}
}

// A key that the operator configured for a well-known provider is no permission
// to send it to the endpoint that a document names for that provider.
func TestConfiguredKeyStaysWithItsProvider(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("FILE"), 0o600); err != nil {
		t.Fatal(err)
	}
	const own = `"base_url": "https://api.anthropic.com/v2"`
	for name, c := range map[string]struct {
		model, config, keyName string
		key                    string // that is sent
		notice                 string // part of it
		err                    string // part of it
	}{
		"a variable": {model: `"provider": "anthropic"`, config: `{"anthropic": {"key": {"env": "MINE"}}}`,
			notice: "the key of models.providers.anthropic is not sent to https://evil.example, which is not anthropic's own endpoint"},
		"a file":                    {model: `"provider": "anthropic"`, config: `{"anthropic": {"key": {"file": "` + file + `"}}}`, notice: "is not sent"},
		"in openai's protocol":      {model: `"provider": "openai"`, config: `{"openai": {"key": {"env": "MINE"}}}`, notice: "is not sent"},
		"by provider_id":            {model: `"provider": "custom", "provider_id": "anthropic"`, config: `{"anthropic": {"key": {"env": "MINE"}}}`, notice: "is not sent"},
		"a customer's own endpoint": {model: `"provider": "azure_openai"`, config: `{"azure_openai": {"key": {"env": "MINE"}}}`, notice: "is not sent"},
		"the key is named":          {model: `"provider": "anthropic"`, config: `{"anthropic": {"key": {"env": "MINE"}}}`, keyName: "NAMED", key: "NAMED"},
		"the provider's origin":     {model: `"provider": "anthropic", ` + own, config: `{"anthropic": {"key": {"env": "MINE"}}}`, key: "MINE"},
		"a file, and its origin":    {model: `"provider": "anthropic", ` + own, config: `{"anthropic": {"key": {"file": "` + file + `"}}}`, key: "FILE"},
		"AWS's variable":            {model: `"provider": "bedrock"`, config: `{"bedrock": {"region": "eu-west-1", "key": {"env": "MINE"}}}`, err: "credentials for bedrock are not sent"},
		"AWS's file":                {model: `"provider": "bedrock"`, config: `{"bedrock": {"region": "eu-west-1", "key": {"file": "` + file + `"}}}`, err: "credentials for bedrock are not sent"},
		"Google Cloud's variable":   {model: `"provider": "vertex_ai"`, config: `{"vertex_ai": {"key": {"env": "MINE"}}}`, err: "credentials for vertex_ai are not sent"},
	} {
		var sent string
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			sent = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("Api-Key") + r.Header.Get("X-Api-Key")
			return nil, errors.New("no server")
		})}
		block := c.model + `, "preferred": "m"`
		if !strings.Contains(block, "base_url") {
			block += `, "base_url": "https://evil.example/v1"`
		}
		s := newSet(t, `{"models": {"providers": `+c.config+`}}`, nil)
		m, notices, err := s.Model(definition(t, block), agents.Options{Secret: env("MINE", "MINE", "NAMED", "NAMED"), KeyName: c.keyName, HTTPClient: client})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q in it", name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, _ = m.Generate(t.Context(), hello(), nil)
		if sent != c.key {
			t.Errorf("%s: the key %q was sent, want %q", name, sent, c.key)
		}
		if got := len(notices); got > 1 || got == 0 && c.notice != "" || got == 1 && (c.notice == "" || !strings.Contains(notices[0].Message, c.notice) || notices[0].Rule != agents.RuleModelKey) {
			t.Errorf("%s: notices %v, want %q", name, notices, c.notice)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A document cannot make the worker send requests into the operator's own
// network.
func TestDocumentsDoNotPointInside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ provider, base, config, why string }{
		{"lab", "http://127.0.0.1:8080/v1", "", `add "http://127.0.0.1:8080" to outbound.allow`},
		{"lab", "http://localhost:8080/v1", "", "outbound.allow"},
		{"lab", "https://localhost/v1", `{"outbound": {"allow": ["*"]}}`, "loopback"},
		{"lab", "http://10.1.2.3/v1", "", "models.providers.lab.base_url"},
		{"lab", "https://[::ffff:169.254.169.254]/latest", "", "metadata"},
		{"lab", "http://2130706433/v1", "", "not written as an address"},
		{"ollama", "http://localhost:6379", "", "outbound.allow"},
		{"lab", "http://127.0.0.1:8080/v1", `{"outbound": {"allow": ["http://127.0.0.1:8080"]}}`, ""},
		{"lab", "http://localhost:8080/v1", `{"outbound": {"allow": ["http://localhost:8080"]}}`, ""},
		{"lab", "http://127.0.0.1:8080/v1", `{"models": {"providers": {"lab": {"base_url": "http://127.0.0.1:9/v1"}}}}`, ""},
		{"lab", "https://models.example/v1", "", ""},
		{"ollama", "http://localhost:11434/v1", "", ""},
		{"ollama", "", "", ""},
	} {
		block := `"provider": "` + c.provider + `", "preferred": "m"`
		if c.provider == "lab" {
			block = `"provider": "custom", "provider_id": "lab", "preferred": "m"`
		}
		if c.base != "" {
			block += `, "base_url": "` + c.base + `"`
		}
		routes, _, err := newSet(t, c.config, nil).Routes(definition(t, block), agents.Options{})
		if err != nil || len(routes) != 1 || (routes[0].Why == "") != (c.why == "") || !strings.Contains(routes[0].Why, c.why) {
			t.Errorf("%s at %s with %s: %+v, %v, want %q", c.provider, c.base, c.config, routes, err, c.why)
		}
	}
}

// A fallback to custom is the first route's provider only where that is custom.
func TestFallbackToCustom(t *testing.T) {
	t.Parallel()
	const fallback = `, "preferred": "m", "fallbacks": [{"provider": "custom", "model": "x"}]`
	for block, want := range map[string]string{
		`"provider": "openai"`: "custom has no base_url or provider_id here",
		`"provider": "openai", "base_url": "https://models.example/v1"`:                          "custom has no base_url or provider_id here",
		`"provider": "custom", "provider_id": "custom", "base_url": "https://models.example/v1"`: "",
		`"provider": "custom", "provider_id": "lab", "base_url": "https://models.example/v1"`:    "",
	} {
		_, notices, err := newSet(t, "", nil).Model(definition(t, block+fallback), agents.Options{Secret: env("OPENAI_API_KEY", "k"), KeyName: "OPENAI_API_KEY"})
		got := ""
		for _, n := range notices {
			if n.Rule == RuleModelRoute && n.Pointer == "/agent/model/fallbacks/0" {
				got += n.Message
			}
		}
		if err != nil || (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: notice %q, %v, want %q", block, got, err, want)
		}
	}
}

func TestEveryProviderHasARoute(t *testing.T) {
	t.Parallel()
	for _, p := range aaif.Providers() {
		if p == aaif.ProviderCustom {
			continue
		}
		if _, ok := providers[p]; !ok {
			t.Errorf("nothing is known of %s", p)
		}
	}
	all := newSet(t, `{"models": {"providers": {"azure_openai": {"base_url": "https://x.openai.azure.com"}, "vertex_ai": {"project": "p"}, "bedrock": {"region": "eu-central-1"}}}}`, nil)
	secret := func(name string) (string, bool) {
		return "secret", strings.HasSuffix(name, "_KEY") || name == "HF_TOKEN"
	}
	for provider, want := range map[string][2]string{ // endpoint and key
		"openai":       {"https://api.openai.com/v1", "OPENAI_API_KEY"},
		"anthropic":    {"https://api.anthropic.com", "ANTHROPIC_API_KEY"},
		"google":       {"https://generativelanguage.googleapis.com", "GEMINI_API_KEY"},
		"vertex_ai":    {"", "Google Cloud"},
		"mistral":      {"https://api.mistral.ai/v1", "MISTRAL_API_KEY"},
		"cohere":       {"https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"},
		"groq":         {"https://api.groq.com/openai/v1", "GROQ_API_KEY"},
		"ollama":       {"http://localhost:11434/v1", "OLLAMA_API_KEY"},
		"azure_openai": {"https://x.openai.azure.com", "AZURE_OPENAI_API_KEY"},
		"bedrock":      {"", "AWS"},
		"huggingface":  {"https://router.huggingface.co/v1", "HF_TOKEN"},
		"together":     {"https://api.together.xyz/v1", "TOGETHER_API_KEY"},
		"fireworks":    {"https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"},
		"deepseek":     {"https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"},
		"xai":          {"https://api.x.ai/v1", "XAI_API_KEY"},
		"openrouter":   {"https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"},
	} {
		routes, notices, err := all.Routes(definition(t, `"provider": "`+provider+`", "preferred": "m"`), agents.Options{Secret: secret})
		if err != nil || len(notices) > 0 || len(routes) != 1 {
			t.Errorf("%s: %v, %v", provider, notices, err)
			continue
		}
		r := routes[0]
		if got := [2]string{r.Endpoint, r.Key}; got != want || r.Why != "" || !r.HasKey || r.M == nil {
			t.Errorf("%s: %v, why %q, want %v", provider, got, r.Why, want)
		}
	}
}

// AAIF requires neither provider nor preferred: without a provider there is no first route to
// attempt, and the fallbacks are walked in their order. The first one gets params.extended.
func TestFallbacksWithoutAProvider(t *testing.T) {
	t.Parallel()
	const block = `"fallbacks": [{"provider": "ollama", "model": "a"}, {"provider": "custom", "model": "x"}, {"provider": "openai", "model": "b"}, {"provider": "ollama", "model": "c"}], "params": {"extended": {"k": 1}}`
	s := newSet(t, "", nil)
	for _, more := range []string{"", `"preferred": "m", `, `"provider_id": "lab", `} {
		def := definition(t, more+block)
		if !orchestrate.HasModel(def) {
			t.Errorf("%s: it has no model", more)
		}
		routes, _, err := s.Routes(def, agents.Options{Secret: env("OPENAI_API_KEY", "k")})
		var got []string
		for _, r := range routes {
			got = append(got, fmt.Sprintf("%s %s %t %s", strings.TrimPrefix(r.Pointer, "/agent/model/"), r.Name(), r.Extended, r.Why))
		}
		want := []string{"fallbacks/0 ollama/a true ", "fallbacks/2 openai/b false ", "fallbacks/3 ollama/c true ",
			"fallbacks/1 custom/x false custom has no base_url or provider_id here: name a provider of models.providers"}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: routes %q, %v, want %q", more, got, err, want)
		}
	}
	def := definition(t, `"fallbacks": [{"provider": "builtin", "model": "echo"}]`)
	opts := agents.Options{Offer: s.Offer()}
	s.Use(&opts)
	if _, err := agents.New(document(t, `"fallbacks": [{"provider": "builtin", "model": "echo"}]`), opts); err != nil {
		t.Error(err)
	}
	m, _, err := s.Model(def, opts)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := m.Generate(t.Context(), hello(), nil); err != nil || res.Message.Content != "hi" {
		t.Errorf("the answer is %+v, %v", res, err)
	}
}

func TestRoutesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model string
		opts  agents.Options
		want  string // part of the error
	}{
		"custom without url":    {`"provider": "custom", "provider_id": "litellm", "preferred": "m"`, agents.Options{}, "models.providers.litellm"},
		"no model name":         {`"provider": "ollama"`, agents.Options{}, "/agent/model/preferred"},
		"no key":                {`"provider": "openai", "preferred": "m"`, agents.Options{}, "OPENAI_API_KEY is not set"},
		"no key of two names":   {`"provider": "google", "preferred": "m"`, agents.Options{}, "GEMINI_API_KEY or GOOGLE_API_KEY is not set"},
		"named key not set":     {`"provider": "ollama", "preferred": "m"`, agents.Options{KeyName: "MY_KEY"}, "MY_KEY is not set"},
		"bad base_url":          {`"provider": "custom", "provider_id": "x", "preferred": "m", "base_url": "ftp://x"`, agents.Options{}, "/agent/model"},
		"azure without place":   {`"provider": "azure_openai", "preferred": "m"`, agents.Options{}, "models.providers.azure_openai.base_url"},
		"bedrock, a stranger's": {`"provider": "bedrock", "preferred": "m", "base_url": "https://evil.example"`, agents.Options{}, "credentials"},
		"vertex, a stranger's":  {`"provider": "vertex_ai", "preferred": "m", "base_url": "https://evil.example"`, agents.Options{}, "credentials"},
		"no provider":           {`"preferred": "m"`, agents.Options{}, "--exec"},
		"builtin what":          {`"provider": "custom", "provider_id": "builtin", "preferred": "gpt"`, agents.Options{}, `"echo", "script" or "filler"`},
		"all routes": {`"provider": "openai", "preferred": "m", "fallbacks": [{"provider": "anthropic", "model": "c"}, {"provider": "nobody", "model": "n"}]`, agents.Options{},
			"/agent/model/fallbacks/1: the endpoint of provider"},
		"window too small": {`"provider": "ollama", "preferred": "m", "min_context_tokens": 9000`, agents.Options{ContextTokens: 8000}, "8000 tokens"},
		"window unknown":   {`"provider": "ollama", "preferred": "m", "min_context_tokens": 9000`, agents.Options{}, "not known"},
	} {
		if _, _, err := newSet(t, "", nil).Model(definition(t, c.model), c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
}

func TestPlanOfADocument(t *testing.T) {
	t.Parallel()
	catalog := filepath.Join(t.TempDir(), "models.json")
	if err := os.WriteFile(catalog, []byte(`{"date": "2026-12-01", "models": [
		{"provider": "lab", "model": "large", "context_tokens": 200000, "input_usd_per_1k": 0, "output_usd_per_1k": 0},
		{"provider": "ollama", "model": "llama3.1", "context_tokens": 131072}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSet(t, `
models:
  catalog: `+catalog+`
  quality: ["ollama/*", "lab/*", "gpt-4o"]
  providers: {lab: {base_url: "https://lab.example/v1"}}
`, nil)
	def := definition(t, `"provider": "openai", "preferred": "gpt-4o-2024-08-06", "routing_strategy": "quality", "min_context_tokens": 100000,
		"params": {"extended": {"reasoning_effort": "low"}},
		"fallbacks": [
			{"provider": "anthropic", "model": "claude-opus-4-5", "max_cost_usd_per_1k_tokens": 0.01},
			{"provider": "lab", "model": "large"},
			{"provider": "groq", "model": "secret-model"},
			{"provider": "ollama", "model": "llama3.1", "max_cost_usd_per_1k_tokens": 0.001},
			{"provider": "openai", "model": "gpt-4"}]`)
	routes, notices, err := s.Routes(def, agents.Options{Secret: env("OPENAI_API_KEY", "k", "ANTHROPIC_API_KEY", "k", "GROQ_API_KEY", "k")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range routes {
		got = append(got, strings.TrimPrefix(r.Pointer, "/agent/model")+" "+r.Name()+" "+r.Why)
	}
	want := []string{
		"/fallbacks/3 ollama/llama3.1 ",
		"/fallbacks/1 lab/large ",
		" openai/gpt-4o-2024-08-06 ",
		"/fallbacks/0 anthropic/claude-opus-4-5 it costs up to 0.025 USD a thousand tokens, and max_cost_usd_per_1k_tokens is 0.01",
		"/fallbacks/2 groq/secret-model its context window is not known, and min_context_tokens is 100000",
		"/fallbacks/4 openai/gpt-4 its context window is not known, and min_context_tokens is 100000",
	}
	if !slices.Equal(got, want) {
		t.Errorf("routes\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	if len(notices) != 2 || notices[0].Pointer != "/agent/model/fallbacks/1" || notices[1].Pointer != "/agent/model/params/extended" {
		t.Errorf("notices %v", notices)
	}
	// An unknown window is an error; a route that cannot be used for another
	// reason is not.
	for keys, want := range map[string]aaif.Severity{"GROQ_API_KEY": aaif.SeverityError, "": aaif.SeverityWarning} {
		if _, notices, err = s.Model(def, agents.Options{Secret: env("OPENAI_API_KEY", "k", keys, "k")}); err != nil {
			t.Fatal(err)
		}
		severity := map[string]aaif.Severity{}
		for _, n := range notices {
			severity[n.Pointer] = n.Severity
		}
		if severity["/agent/model/fallbacks/0"] != aaif.SeverityWarning || severity["/agent/model/fallbacks/2"] != want {
			t.Errorf("with %q: notices %v", keys, notices)
		}
	}
}

// A notice reports an endpoint to which no key is sent because none is set: the
// worker does not know whether it needs one.
func TestKeylessProvidersAreToldOf(t *testing.T) {
	t.Parallel()
	const operators = `{"models": {"providers": {"lab": {"base_url": "https://lab.example/v1"}, "openai": {"base_url": "https://gw.example/v1"}, "near": {"base_url": "http://127.0.0.1:8000/v1"}}}}`
	for block, want := range map[string]string{
		`"provider": "custom", "provider_id": "lab"`:                                            "no key is sent to https://lab.example: LAB_API_KEY is not set (or set models.providers.lab.key",
		`"provider": "custom", "provider_id": "other", "base_url": "https://models.example/v1"`: "no key is sent to https://models.example: OTHER_API_KEY is not set",
		`"provider": "openai"`:                                                                    "no key is sent to https://gw.example: OPENAI_API_KEY is not set",
		`"provider": "custom", "provider_id": "near"`:                                             "",
		`"provider": "ollama", "base_url": "https://ollama.example/v1"`:                           "",
		`"provider": "custom", "provider_id": "keyed", "base_url": "https://keyed.example/v1"`:    "",
		`"provider": "custom", "provider_id": "builtin", "preferred": "echo", "base_url": "http"`: "",
	} {
		if !strings.Contains(block, "preferred") {
			block += `, "preferred": "m"`
		}
		config := operators
		if strings.Contains(block, "keyed") {
			config = `{"outbound": {"allow": ["keyed.example"]}, "secrets": {"env": ["KEYED_API_KEY"]}}`
		}
		_, notices, err := newSet(t, config, nil).Model(definition(t, block), agents.Options{Secret: env("KEYED_API_KEY", "k")})
		if err != nil {
			t.Errorf("%s: %v", block, err)
			continue
		}
		got := ""
		for _, n := range notices {
			if strings.Contains(n.Message, "no key") {
				got += n.String()
			}
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", block, got, want)
		}
	}
}

// Under a budget in dollars a model without a price would never be called: its
// route is not used, which is reported before the first task.
func TestBudgetsInDollarsNeedPrices(t *testing.T) {
	t.Parallel()
	const lab = `"models": {"providers": {"lab": {"base_url": "http://127.0.0.1:9/v1"}}}`
	def := definition(t, `"provider": "custom", "provider_id": "lab", "preferred": "m"`)
	opts := agents.Options{Secret: env("OPENAI_API_KEY", "k")}
	for budget, refused := range map[string]bool{`{"run_usd": 1}`: true, `{"tree_usd": 0.5}`: true, `{"run_tokens": 10}`: false} {
		s := newSet(t, `{"budget": `+budget+`, `+lab+`}`, nil)
		opts.Budget = agents.Budget{}
		s.Use(&opts)
		_, _, err := s.Model(def, opts)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "budget in dollars: put the model into a catalogue") {
			t.Errorf("%s: %v", budget, err)
		}
		routes, _, err := s.Routes(def, opts)
		if err != nil || len(routes) != 1 || (routes[0].Why != "") != refused {
			t.Errorf("%s: %+v, %v", budget, routes, err)
		}
		if !refused {
			continue
		}
		_, notices, err := s.Model(definition(t, `"provider": "custom", "provider_id": "lab", "preferred": "m", "fallbacks": [{"provider": "openai", "model": "gpt-4o"}]`), opts)
		if err != nil || !slices.ContainsFunc(notices, func(p aaif.Problem) bool { return strings.Contains(p.Message, "lab/m is not taken: its price") }) {
			t.Errorf("%s with a fallback: %v, %v", budget, notices, err)
		}
	}
}

// A turn has the price of the builtin catalogue.
func TestTurnsHaveTheirCost(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(completion))
	}))
	t.Cleanup(srv.Close)
	s := newSet(t, `{"models": {"providers": {"openai": {"base_url": "`+srv.URL+`"}}}}`, nil)
	m, _, err := s.Model(definition(t, `"provider": "openai", "preferred": "gpt-4o"`), agents.Options{Secret: env("OPENAI_API_KEY", "k")})
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.Generate(t.Context(), hello(), nil)
	if err != nil || !res.Priced || res.Cost.String() != "0.0000175" || res.Provider != "openai" {
		t.Errorf("cost %s, priced %v, provider %s, error %v", res.Cost, res.Priced, res.Provider, err)
	}
}

// The offline model has a known price of zero, and its calls need admission like those of any
// other.
func TestTheOfflineModelIsFreeAndAdmitted(t *testing.T) {
	t.Parallel()
	m, _, err := newSet(t, `{"budget": {"run_usd": 1}}`, nil).Model(definition(t, `"provider": "custom", "provider_id": "builtin", "preferred": "echo"`), agents.Options{})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	req := hello()
	req.Model = "echo"
	req.Admit = func(p model.Price) error {
		if !p.Known || p.Input != 0 || p.Output != 0 {
			t.Errorf("price %+v", p)
		}
		return refused
	}
	if _, err := m.Generate(t.Context(), req, nil); !errors.Is(err, refused) {
		t.Errorf("not admitted: %v", err)
	}
	req.Admit = nil
	if res, err := m.Generate(t.Context(), req, nil); err != nil || !res.Priced || res.Cost != 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

// An operator's price of the offline model is used like that of any other: for admission, for the
// cost of a turn, and in the list of routes.
func TestTheOfflineModelHasTheOperatorsPrice(t *testing.T) {
	t.Parallel()
	catalog := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(catalog, []byte(`{"date": "2026-11-01", "models": [{"provider": "builtin", "model": "*", "input_usd_per_1k": 1, "output_usd_per_1k": 2, "max_output_tokens": 7}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSet(t, `{"models": {"catalog": "`+catalog+`"}, "budget": {"run_usd": 1}}`, nil)
	for name, fallback := range map[string]string{"alone": "", "with a fallback": `, "fallbacks": [{"provider": "openai", "model": "gpt-4o"}]`} {
		def := definition(t, `"provider": "custom", "provider_id": "builtin", "preferred": "echo"`+fallback)
		opts := agents.Options{Secret: env("OPENAI_API_KEY", "k")}
		s.Use(&opts)
		routes, _, err := s.Routes(def, opts)
		if err != nil || *routes[0].Facts.Input != model.Dollar || *routes[0].Facts.Output != 2*model.Dollar {
			t.Errorf("%s: the routes are %+v, error %v", name, routes, err)
		}
		m, _, err := s.Model(def, opts)
		if err != nil {
			t.Fatal(err)
		}
		req := hello()
		req.Model = "echo"
		var asked model.Price
		req.Admit = func(p model.Price) error { asked = p; return nil }
		res, err := m.Generate(t.Context(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := (model.Price{Input: model.Dollar, Output: 2 * model.Dollar, Known: true, MaxOutput: 7}); asked != want {
			t.Errorf("%s: admission was asked for %+v, want %+v", name, asked, want)
		}
		cost := model.Dollar.For(res.Usage.InputTokens).Add((2 * model.Dollar).For(res.Usage.OutputTokens))
		if !res.Priced || cost == 0 || res.Cost != cost {
			t.Errorf("%s: the turn cost %s (priced %v), want %s", name, res.Cost, res.Priced, cost)
		}
	}
}

// The offline model alone is no route: a script that fails says nothing about
// the next task.
func TestScriptsThatFailAreNotLeftAlone(t *testing.T) {
	t.Parallel()
	def := definition(t, `"provider": "custom", "provider_id": "builtin", "preferred": "script", "params": {"extended": {"script": [{"error": {"kind": "unavailable"}}]}}`)
	m, _, err := newSet(t, "", nil).Model(def, agents.Options{})
	if err != nil {
		t.Fatal(err)
	}
	req := hello()
	req.Model, req.Params.Extended = "script", json.RawMessage(def.Agent.Model.Params.Extended)
	for range 8 {
		var failed *model.Error
		if _, err := m.Generate(t.Context(), req, nil); !errors.As(err, &failed) || failed.Kind != model.ErrUnavailable || len(failed.Tries) > 0 {
			t.Fatalf("%v", err)
		}
	}
}

// A vault that does not answer for a moment says nothing about the key in it.
func TestAKeyInAVaultThatDoesNotAnswerIsReadLater(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusServiceUnavailable)
	vault := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := int(status.Load()); code != http.StatusOK {
			w.WriteHeader(code)
			return
		}
		_, _ = io.WriteString(w, `{"data":{"data":{"k":"key-12345678"}}}`)
	}))
	t.Cleanup(vault.Close)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer key-12345678" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, completion)
	}))
	t.Cleanup(api.Close)
	s := newSet(t, `
vaults: {hashicorp_vault: {allow: [x], cache_seconds: 0, hashicorp: {address: "`+vault.URL+`", token: "env:VAULT", kv: 2, mount: secret}}}
models: {providers: {openai: {base_url: "`+api.URL+`", key: {vault: {provider: hashicorp_vault, path: secret/openai, key: k}}}}}`, env("VAULT", "vault-token-1"))
	opts := agents.Options{}
	s.Use(&opts)
	m, _, err := s.Model(document(t, `"provider": "openai", "preferred": "m"`).Definition(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status int64
		kind   model.Kind
	}{{503, model.ErrUnavailable}, {429, model.ErrUnavailable}, {403, model.ErrAuth}, {404, model.ErrAuth}} {
		status.Store(c.status)
		var failed *model.Error
		if _, err := m.Generate(t.Context(), hello(), nil); !errors.As(err, &failed) || failed.Kind != c.kind || !errors.Is(err, secret.OfStatus(int(c.status))) {
			t.Errorf("HTTP %d: %v, want %s", c.status, err, c.kind)
		}
	}
	status.Store(http.StatusOK)
	if _, err := m.Generate(t.Context(), hello(), nil); err != nil {
		t.Errorf("the vault answers again: %v", err)
	}
}

package adapters

import (
	"cmp"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/model"
)

func TestEmbeddersByName(t *testing.T) {
	t.Parallel()
	s := &Set{}
	opts := agents.Options{Secret: func(name string) (string, bool) { return "k", name == "OPENAI_API_KEY" }}
	for name, want := range map[string]string{
		"offline/ngrams":                "offline/ngrams-1",
		"openai/text-embedding-3-small": "openai/text-embedding-3-small",
		"ollama/nomic-embed-text":       "ollama/nomic-embed-text",
		"mistral/mistral-embed":         "", // no key
		"anthropic/x":                   "",
		"offline/x":                     "",
		"openai":                        "",
	} {
		e, err := s.Embedder(name, opts)
		if (err != nil) != (want == "") || err == nil && e.Name() != want {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
}

// Gemini and Azure offer OpenAI's protocol at URLs of their own.
func TestEmbeddersAreFound(t *testing.T) {
	t.Parallel()
	for provider, want := range map[string]string{"google": "/v1beta/openai/embeddings Bearer k", "azure_openai": "/openai/v1/embeddings k", "mistral": "/embeddings Bearer k"} {
		got := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.URL.Path + " " + cmp.Or(r.Header.Get("Authorization"), r.Header.Get("api-key"))
			_, _ = w.Write([]byte(`{"data":[{"index":0,"embedding":[1,0]}]}`))
		}))
		s := &Set{cfg: Config{Models: Models{Providers: map[string]Provider{provider: {BaseURL: server.URL}}}}}
		e, err := s.Embedder(provider+"/m", agents.Options{Secret: func(string) (string, bool) { return "k", true }})
		if err != nil {
			t.Fatalf("%s: %v", provider, err)
		}
		if _, err := e.Embed(t.Context(), []string{"a"}); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", provider, got, err, want)
		}
		server.Close()
	}
}

// The clouds have one call for all models, and their adapters sign it.
func TestEmbeddersOfClouds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ key, answer, want string }{
		"bedrock/amazon.titan-embed-text-v2:0": {"AKIDEXAMPLE1234567890:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", `{"embedding":[1,0]}`, "/model/amazon.titan-embed-text-v2%3A0/invoke AWS4-HMAC-SHA256"},
		"vertex_ai/text-embedding-005":         {"k", `{"predictions":[{"embeddings":{"values":[1,0]}}]}`, "/v1beta1/publishers/google/models/text-embedding-005:predict k"},
	} {
		got, status := "", http.StatusOK
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			auth, _, _ := strings.Cut(cmp.Or(r.Header.Get("Authorization"), r.Header.Get("X-Goog-Api-Key")), " ")
			got = r.URL.EscapedPath() + " " + auth
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(c.answer))
		}))
		provider, _, _ := strings.Cut(name, "/")
		settings := Provider{BaseURL: server.URL, Key: SecretRef{Env: "CLOUD_KEY"}}
		if provider == "bedrock" {
			settings.Region = "eu-central-1"
		}
		s, err := New(Config{Models: Models{Providers: map[string]Provider{provider: settings}}}, Options{Env: func(name string) (string, bool) { return c.key, name == "CLOUD_KEY" }})
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.Embedder(name, agents.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := e.Embed(t.Context(), []string{"a"}); err != nil || got != c.want || e.Name() != name {
			t.Errorf("%s: %q, %v; want %q", e.Name(), got, err, c.want)
		}
		for at, want := range map[int]model.Kind{403: model.ErrAuth, 429: model.ErrRateLimited, 503: model.ErrUnavailable, 400: model.ErrBadRequest} {
			status = at
			if _, err := e.Embed(t.Context(), []string{"a"}); !errors.Is(err, want) || strings.Contains(err.Error(), c.key) && len(c.key) > 1 {
				t.Errorf("%s: %d: %v", name, at, err)
			}
		}
		server.Close()
	}
}

package adapters

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
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

// Gemini and Azure have OpenAI's protocol at places of their own.
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

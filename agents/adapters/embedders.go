package adapters

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/embedding"
	"github.com/aeemesh/aeemesh/agents/embedding/hosted"
	"github.com/aeemesh/aeemesh/agents/embedding/ngrams"
	"github.com/aeemesh/aeemesh/agents/embedding/openai"
	"github.com/aeemesh/aeemesh/agents/model/bedrock"
	"github.com/aeemesh/aeemesh/agents/model/google"
)

// Offline is the name of the embedder that needs no model. It is degraded: it compares
// spelling, not meaning.
const Offline = "offline/ngrams"

// Embedder makes the embedder of a name PROVIDER/MODEL, such as
// "openai/text-embedding-3-small" or "offline/ngrams". It uses the endpoints and
// keys of section models, and does no network I/O.
func (s *Set) Embedder(name string, opts agents.Options) (embedding.Embedder, error) {
	s.Use(&opts)
	provider, model, ok := strings.Cut(name, "/")
	switch {
	case !ok || provider == "" || model == "":
		return nil, fmt.Errorf("embedder %q: its name is not PROVIDER/MODEL", name)
	case name == Offline:
		return ngrams.Embedder{}, nil
	case provider == "offline":
		return nil, fmt.Errorf("embedder %q: the offline one is %s", name, Offline)
	}
	e, _, err := s.endpoint("embedder "+name, provider, false, nil, opts)
	if err != nil {
		return nil, err
	}
	base, header := e.base, e.KeyHeader
	switch {
	case e.api == APIBedrock || e.api == APIVertex:
		return e.hosted(model, opts)
	case e.api == APIGoogle: // also offers OpenAI's protocol
		base = strings.TrimSuffix(base, "/") + "/v1beta/openai"
	case provider == string(aaif.ProviderAzureOpenAI):
		header = cmp.Or(header, "api-key")
		if u, err := url.Parse(base); err == nil && strings.Trim(u.Path, "/") == "" {
			base = u.JoinPath("openai", "v1").String()
		}
	case e.api != APIOpenAI:
		return nil, fmt.Errorf("embedder %q: embeddings of %s are not supported", name, provider)
	}
	return openai.New(openai.Config{Provider: provider, Model: model, BaseURL: base, Key: e.key, KeyHeader: header, HTTPClient: e.client, MaxRetries: 1})
}

// hosted makes the embedder of a cloud's service, which is called by the adapter for the cloud's
// models.
func (e *endpoint) hosted(name string, opts agents.Options) (embedding.Embedder, error) {
	m, err := e.model(opts)
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *bedrock.Model:
		return hosted.Bedrock(e.name, name, m.Invoke)
	case *google.Model:
		return hosted.Vertex(e.name, name, m.Predict)
	}
	return nil, fmt.Errorf("embedder %s/%s: there is no adapter for the API %s", e.name, name, e.api)
}

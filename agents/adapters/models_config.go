package adapters

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/route"
)

// Models are the models that documents may name, and facts about them.
type Models struct {
	// Catalog is a file with facts about models, in the form of the built-in
	// catalogue, over which it takes precedence. Default none.
	Catalog string `json:"catalog,omitzero"`
	// Quality ranks models for routing_strategy quality, the best first: names
	// or patterns of models, PROVIDER/MODEL or MODEL, in which * stands for any
	// characters. Models that match none come after, ranked by the catalogue.
	Quality []string `json:"quality,omitzero"`
	// Providers are the operator's endpoints and keys, by the provider's name: one
	// of the specification's, or a provider_id of documents, which may also be
	// named in their fallbacks.
	Providers map[string]Provider `json:"providers,omitzero"`

	// BreakerFailures is how many failures in a row take a route out of
	// service, for BreakerOpenSeconds. Default 5 and 30.
	BreakerFailures    int     `json:"breaker_failures,omitzero"`
	BreakerOpenSeconds float64 `json:"breaker_open_seconds,omitzero"`
}

// Provider is the operator's configuration of a provider.
type Provider struct {
	// API is the protocol that it speaks. Default: the provider's own, and
	// openai for providers that are not in the registry.
	API API `json:"api,omitzero"`
	// BaseURL is its address. It replaces the base_url of documents, and the
	// key is sent there. Default: the provider's own endpoint; azure_openai has
	// none.
	BaseURL string `json:"base_url,omitzero"`
	// Key is the source of its API key, read at each call. Default: the
	// provider's own variable.
	Key SecretRef `json:"key,omitzero"`
	// KeyHeader is the header that carries the key, if the API has several:
	// Authorization for azure_openai means that the key is a token of Entra.
	KeyHeader string `json:"key_header,omitzero"`

	// APIVersion is the API version of azure_openai.
	APIVersion string `json:"api_version,omitzero"`
	// Betas are values of the header anthropic-beta, which enable features that
	// a document's params.extended may use.
	Betas []string `json:"betas,omitzero"`
	// Region is the AWS region, for bedrock. Default: the environment's.
	Region string `json:"region,omitzero"`
	// Project and Location are Google Cloud's, for vertex_ai. Default: the
	// environment's.
	Project  string `json:"project,omitzero"`
	Location string `json:"location,omitzero"`
	// CredentialsFile is a file with Google Cloud's credentials, for vertex_ai.
	// Default: the environment's.
	CredentialsFile string `json:"credentials_file,omitzero"`
}

// catalogFile reads an operator's catalogue.
func catalogFile(name string) (*route.Catalog, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > route.MaxCatalog {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, route.MaxCatalog)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	c, err := route.ReadCatalog(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// checkModels reports all problems of the section.
func (s *Set) checkModels() error {
	m := &s.cfg.Models
	var bad []error
	if m.BreakerFailures < 0 {
		bad = append(bad, errors.New("/models/breaker_failures: it must not be negative"))
	}
	if m.BreakerOpenSeconds < 0 {
		bad = append(bad, errors.New("/models/breaker_open_seconds: it must not be negative"))
	}
	for i, pattern := range m.Quality {
		if strings.Trim(pattern, " *") == "" {
			bad = append(bad, fmt.Errorf("/models/quality/%d: %q names no model", i, pattern))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Providers)) {
		p := m.Providers[name]
		where := string(jsontext.Pointer("/models/providers").AppendToken(name))
		switch p.API {
		case "", APIOpenAI, APIAnthropic, APIGoogle, APIVertex, APIBedrock:
		default:
			bad = append(bad, fmt.Errorf("%s/api: %q is not one of openai, anthropic, google, vertex_ai and bedrock", where, p.API))
		}
		switch {
		case name == "":
			bad = append(bad, errors.New("/models/providers: a provider has no name"))
			continue
		case name == string(aaif.ProviderCustom):
			bad = append(bad, fmt.Errorf("%s: name the provider by its provider_id", where))
		}
		for _, err := range p.check(name) {
			bad = append(bad, fmt.Errorf("%s/%w", where, err))
		}
		if meant := meantProvider(name); meant != "" {
			s.opts.Logger.Warn("a provider of the configuration is called almost like one of the specification's", "at", where, "meant", string(meant))
		}
		if !p.Key.IsZero() {
			if err := s.checkRef(p.Key); err != nil {
				bad = append(bad, fmt.Errorf("%s/key: %w", where, err))
			}
		}
	}
	return errors.Join(bad...)
}

// check reports the errors in a provider's entry, and its settings that would be ignored.
func (p *Provider) check(name string) []error {
	var bad []error
	if p.BaseURL != "" {
		if u, err := url.Parse(p.BaseURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			bad = append(bad, errors.New("base_url: it is not an http or https URL"))
		}
	}
	api := p.API
	if api == "" {
		api = known(name).api
	}
	for _, f := range []struct {
		name string
		set  bool
		of   API
	}{
		{"key_header", p.KeyHeader != "", APIOpenAI},
		{"api_version", p.APIVersion != "", APIOpenAI},
		{"betas", len(p.Betas) > 0, APIAnthropic},
		{"region", p.Region != "", APIBedrock},
		{"project", p.Project != "", APIVertex},
		{"location", p.Location != "", APIVertex},
		{"credentials_file", p.CredentialsFile != "", APIVertex},
	} {
		if f.set && f.of != api {
			bad = append(bad, fmt.Errorf("%s: it is of the API %s, and %s speaks %s", f.name, f.of, name, api))
		}
	}
	return bad
}

// meantProvider returns the provider of the specification whose name differs
// from the given one in one letter, two transposed letters, or its case; "" if
// there is none. Short names are not compared, because they are too similar.
func meantProvider(name string) aaif.Provider {
	if _, ok := providers[aaif.Provider(name)]; ok {
		return ""
	}
	for _, p := range aaif.Providers() {
		if len(p) > 4 && aaif.Distance(strings.ToLower(name), string(p)) <= 1 || strings.EqualFold(name, string(p)) {
			return p
		}
	}
	return ""
}

// openModels reads section models, and the catalogue that it names.
func (s *Set) openModels(bad *problems) {
	m := &s.cfg.Models
	bad.note("", s.checkModels())
	s.catalog = route.Builtin()
	if m.Catalog != "" {
		own, err := catalogFile(m.Catalog)
		bad.note("/models/catalog", err)
		if err == nil {
			s.catalog = s.catalog.With(own)
		}
	}
	s.health = route.NewHealth(route.HealthOptions{Failures: m.BreakerFailures, Open: time.Duration(m.BreakerOpenSeconds * float64(time.Second))})
}

// Catalog returns the facts about models: the operator's catalogue, then the
// built-in one.
func (s *Set) Catalog() *route.Catalog { return s.catalog }

package adapters

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/anthropic"
	"github.com/aeemesh/aeemesh/agents/model/bedrock"
	"github.com/aeemesh/aeemesh/agents/model/google"
	"github.com/aeemesh/aeemesh/agents/model/openai"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// endpoint says where requests to a provider are sent, and with which
// credentials.
type endpoint struct {
	Provider // the operator's entry for the provider
	name     string
	api      API
	base     string // "" if the adapter knows it
	keyFrom  string
	hasKey   bool
	key      func(context.Context) (string, error)
	client   *http.Client // the client that reaches it; nil: the adapter's own
}

// endpoint determines how a provider is reached. own says whether the
// document's base_url belongs to this provider.
func (s *Set) endpoint(at, name string, own bool, m *aaif.Model, opts agents.Options) (endpoint, []aaif.Problem, error) {
	k := known(name)
	e := endpoint{Provider: s.cfg.Models.Providers[name], name: name, api: k.api, client: opts.HTTPClient}
	if e.API != "" {
		e.api = e.API
	}
	var notices []aaif.Problem
	documentChose := false // the document chose the endpoint
	switch {
	case e.BaseURL != "":
		e.base = e.BaseURL
		if own && m.BaseURL != "" && originOf(m.BaseURL) != originOf(e.base) {
			notices = append(notices, keyNotice("the operator's endpoint for %s, %s, is used instead", name, originOf(e.base)))
		}
	case own && m.BaseURL != "":
		e.base, documentChose = m.BaseURL, true
		if e.base == ownEndpoint(name) {
			break // that section's own problems have been reported
		}
		if err := s.policy.CheckLiteral(e.base); err != nil {
			return e, notices, fmt.Errorf("%s: the document's base_url is not used: %w; or set models.providers.%s.base_url", at, err, name)
		}
		if e.client != nil {
			break
		}
		var err error // the adapters bound the time and size of answers themselves
		if e.client, err = s.policy.Client(outbound.Options{Public: true, Timeout: -1, MaxResponse: -1}); err != nil {
			return e, notices, fmt.Errorf("%s: %w", at, err)
		}
	case name == string(aaif.ProviderAzureOpenAI):
		e.base, _ = firstSet(opts, "AZURE_OPENAI_ENDPOINT")
	default:
		e.base = ownEndpoint(name)
	}
	switch _, registered := providers[aaif.Provider(name)]; {
	case e.base != "" || e.api == APIBedrock || e.api == APIVertex:
	case name == string(aaif.ProviderCustom): // the configuration has no provider of this name
		return e, notices, fmt.Errorf("%s: custom has no base_url or provider_id here: name a provider of models.providers", at)
	case name == string(aaif.ProviderAzureOpenAI):
		return e, notices, fmt.Errorf("%s: azure_openai has no common endpoint: set models.providers.azure_openai.base_url, or AZURE_OPENAI_ENDPOINT", at)
	case !registered:
		return e, notices, fmt.Errorf("%s: the endpoint of provider %s is not known: give its base_url, in the document or in models.providers.%s", at, name, name)
	}
	more, err := s.credential(&e, k, at, own, documentChose, opts)
	return e, append(notices, more...), err
}

// credential decides which key is sent to an endpoint. A base_url comes from the document, which
// may be untrusted. So neither a well-known provider's key, from its usual variable or from the
// operator's configuration, nor a cloud's credentials may be sent to it. The name of a custom
// provider's key follows from the document, so it could be any variable that ends in _API_KEY: it
// is sent to the document's base_url only if the operator has configured it, or has permitted
// documents to read that variable and has named the host.
func (s *Set) credential(e *endpoint, k provider, at string, own, documentChose bool, opts agents.Options) ([]aaif.Problem, error) {
	_, registered := providers[aaif.Provider(e.name)]
	foreign := documentChose && registered && originOf(ownEndpoint(e.name)) != originOf(e.base)
	cloud := e.api == APIBedrock || e.api == APIVertex
	switch {
	case own && opts.KeyName != "":
		return nil, s.keyIn(e, at, []string{opts.KeyName}, opts, false)
	case foreign && !cloud && !e.Provider.Key.IsZero():
		p := keyNotice("the key of models.providers.%s is not sent to %s, which is not %[1]s's own endpoint", e.name, originOf(e.base))
		p.Hint = fmt.Sprintf("to send it there, set models.providers.%s.base_url, or name its variable (worker --api-key-env)", e.name)
		return []aaif.Problem{p}, nil
	case !foreign && e.Provider.Key.Env != "":
		return nil, s.keyIn(e, at, []string{e.Provider.Key.Env}, opts, false)
	case !foreign && !e.Provider.Key.IsZero():
		ref := e.Provider.Key
		e.hasKey = true
		e.keyFrom = "file"
		if ref.Vault != nil {
			e.keyFrom = "vault " + string(ref.Vault.Provider)
		}
		e.key = func(ctx context.Context) (string, error) {
			v, err := s.Secret(ctx, ref)
			if errors.Is(err, secret.ErrUnavailable) {
				return "", model.Errorf(model.ErrUnavailable, "resolve the key: %w", err)
			}
			return v.Reveal(), err
		}
		return nil, nil
	}
	if documentChose && cloud {
		return nil, fmt.Errorf("%s: the credentials for %s are not sent to the document's base_url: the operator names endpoints of its own (models.providers.%s.base_url)", at, e.name, e.name)
	}
	var keys []string
	for _, name := range k.keys {
		if _, set := secretOf(opts, name); set {
			keys = []string{name}
			break
		}
	}
	if len(keys) == 0 {
		switch {
		case e.api == APIBedrock:
			e.keyFrom, e.hasKey = "AWS", true
			return nil, nil
		case e.api == APIVertex:
			e.keyFrom, e.hasKey = "Google Cloud", true
			return nil, nil
		}
		err := s.keyIn(e, at, k.keys, opts, k.keyless || e.BaseURL != "" || documentChose)
		if err != nil || registered && k.keyless || loopback(e.base) {
			return nil, err
		}
		return []aaif.Problem{e.keylessNotice(at, k)}, nil
	}
	switch owner := keyOwner(keys[0]); {
	case !documentChose:
	case owner != "" && originOf(ownEndpoint(string(owner))) != originOf(e.base):
		p := keyNotice("the key in %s is not sent to %s, which is not %s's own endpoint", keys[0], originOf(e.base), owner)
		p.Hint = "name the key yourself to send it there"
		return []aaif.Problem{p}, nil
	case owner == "":
		err := s.secrets.Check(&aaif.Auth{Type: aaif.AuthBearer, EnvVar: keys[0]})
		if err == nil {
			err = s.policy.CheckNamed(e.base)
		}
		if err != nil {
			p := keyNotice("the key in %s is not sent to the document's base_url, %s: %v", keys[0], originOf(e.base), err)
			p.Hint = fmt.Sprintf("set models.providers.%s.base_url, or name the key yourself (worker --api-key-env %s), or allow the variable and the host (--allow-env, --allow)", e.name, keys[0])
			return []aaif.Problem{p}, nil
		}
		if loopback(e.base) {
			break
		}
		return []aaif.Problem{keyNotice("the key in %s is sent to %s", keys[0], originOf(e.base))}, s.keyIn(e, at, keys, opts, true)
	}
	return nil, s.keyIn(e, at, keys, opts, true)
}

// keyIn reads the key of an endpoint from the first of the variables that is set. An optional key
// may be missing.
func (s *Set) keyIn(e *endpoint, at string, names []string, opts agents.Options, optional bool) error {
	for _, name := range names {
		if _, set := secretOf(opts, name); !set {
			continue
		}
		e.keyFrom, e.hasKey = name, true
		e.key = func(context.Context) (string, error) {
			key, ok := secretOf(opts, name)
			if !ok {
				return "", fmt.Errorf("%s is not set", name)
			}
			s.know(secret.New(key))
			return key, nil
		}
		return nil
	}
	if optional {
		return nil
	}
	e.keyFrom = strings.Join(names, " or ")
	return fmt.Errorf("%s: model key: %s is not set", at, e.keyFrom)
}

// keylessNotice tells the operator that no key is sent to an endpoint, because
// none is set. Some endpoints need none.
func (e *endpoint) keylessNotice(at string, k provider) aaif.Problem {
	p := keyNotice("no key is sent to %s", originOf(e.base))
	p.Pointer = at
	if len(k.keys) > 0 {
		p.Message += ": " + strings.Join(k.keys, " or ") + " is not set"
		p.Hint = fmt.Sprintf("or set models.providers.%s.key; some endpoints need none", e.name)
	}
	return p
}

func keyNotice(format string, args ...any) aaif.Problem {
	return aaif.Problem{Pointer: "/agent/model/base_url", Rule: agents.RuleModelKey, Severity: aaif.SeverityWarning, Message: fmt.Sprintf(format, args...)}
}

// model makes the adapter for an endpoint. It does no I/O.
func (e *endpoint) model(opts agents.Options) (model.Model, error) {
	switch e.api {
	case APIOpenAI:
		cfg := openai.Config{Provider: e.name, BaseURL: e.base, APIVersion: e.APIVersion, KeyHeader: e.KeyHeader, Key: e.key, HTTPClient: e.client}
		if _, ok := openai.LookupProvider(e.name); !ok {
			cfg.Provider = string(aaif.ProviderCustom)
		}
		return openai.New(cfg)
	case APIAnthropic:
		return anthropic.New(anthropic.Config{BaseURL: e.base, Key: e.key, Betas: e.Betas, HTTPClient: e.client})
	case APIBedrock:
		region := e.Region
		if region == "" {
			region, _ = firstSet(opts, "AWS_REGION", "AWS_DEFAULT_REGION")
		}
		return bedrock.New(bedrock.Config{Region: region, BaseURL: e.base, Key: e.key, HTTPClient: e.client})
	case APIGoogle:
		return google.New(google.Config{Provider: google.Gemini, BaseURL: e.base, Key: e.key, HTTPClient: e.client})
	case APIVertex:
		cfg := google.Config{Provider: google.Vertex, BaseURL: e.base, Key: e.key, Project: e.Project, Location: e.Location, HTTPClient: e.client}
		if cfg.Project == "" {
			cfg.Project, _ = firstSet(opts, "GOOGLE_CLOUD_PROJECT")
		}
		if cfg.Location == "" {
			cfg.Location, _ = firstSet(opts, "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION")
		}
		if cfg.Key == nil {
			cfg.Token = google.Credentials(e.credentialsFile(opts), e.client)
		}
		return google.New(cfg)
	}
	return nil, fmt.Errorf("there is no adapter for the API %s", e.api)
}

// googleCredentials is the variable that names a file with Google Cloud's
// credentials.
const googleCredentials = "GOOGLE_APPLICATION_CREDENTIALS"

// credentialsFile returns the operator's file with Google Cloud's credentials; "" for the default
// locations of Google's own tools.
func (e *endpoint) credentialsFile(opts agents.Options) string {
	if e.CredentialsFile != "" {
		return e.CredentialsFile
	}
	name, _ := firstSet(opts, googleCredentials)
	return name
}

// firstSet returns the value of the first of some variables that is set.
func firstSet(opts agents.Options, names ...string) (string, bool) {
	for _, name := range names {
		if v, ok := secretOf(opts, name); ok {
			return v, true
		}
	}
	return "", false
}

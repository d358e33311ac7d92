package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// DefaultBaseURL is OpenAI's own endpoint.
const DefaultBaseURL = "https://api.openai.com/v1"

// The other defaults of [Config].
const (
	DefaultMaxRetryDelay  = 8 * time.Second
	DefaultRequestTimeout = 10 * time.Minute
	DefaultMaxResponse    = 32 << 20 // bytes
)

// DefaultAPIVersion is the api-version that Azure is asked for where
// [Config].APIVersion is empty.
const DefaultAPIVersion = "2024-10-21"

// Config says where the endpoint is and how to treat it.
type Config struct {
	// Provider is whose endpoint it is, by AAIF's model.provider: one of
	// [Providers]. Default the one whose own host BaseURL has, openai where
	// that is empty, and else custom.
	Provider string

	// BaseURL of the endpoint, up to and without /chat/completions. http or
	// https, without user, query and fragment. Default the provider's own;
	// azure_openai and custom have none.
	//
	// Azure's is that of the resource, https://NAME.openai.azure.com, where
	// the model of a request names a deployment; or ends in /openai/v1, the
	// version of the API that needs no other; or in /deployments/NAME.
	BaseURL string

	// APIVersion is the api-version of azure_openai. Default
	// DefaultAPIVersion; without effect for others and for /openai/v1.
	APIVersion string

	// KeyHeader is the header that carries the key. Default Authorization, as
	// a bearer token, and api-key for azure_openai, where Authorization means
	// that Key returns tokens of Microsoft Entra.
	KeyHeader string

	// Key returns the API key. It is called once for each Generate, at most as
	// often as Generate at once, and its error's text becomes part of an
	// ErrAuth. Nil, or an empty key, sends none.
	Key func(ctx context.Context) (string, error)

	// HTTPClient carries the requests. Default: one of the Model's own, on the
	// standard library's transport, which heeds the usual proxy variables. A
	// client with a Timeout would cut streams.
	HTTPClient *http.Client

	// MaxRetries is how often a request is tried again before the answer has
	// begun, after connection failures and the statuses 408, 409, 429 and 5xx.
	// Default 0: the agent's runtime retries (AAIF runtime.max_retries).
	MaxRetries int

	// MaxRetryDelay is the longest wait between two tries. Where the server
	// asks for a longer one, there is no retry. Default 8 s.
	MaxRetryDelay time.Duration

	// RequestTimeout bounds one try, its whole stream included. Default 10
	// minutes; the context of Generate bounds all tries together.
	RequestTimeout time.Duration

	// MaxResponse bounds the bytes of an answer's body. Default 32 MiB.
	MaxResponse int64
}

// Model is an endpoint. Make it with [New].
type Model struct {
	cfg      Config
	provider Provider
	base     *url.URL
	host     string
	client   *endpoint.Client
	refusals refusals
}

// New returns a Model, or all that is wrong with cfg. It does no I/O.
func New(cfg Config) (*Model, error) {
	var problems []error
	provider, err := cfg.provider()
	if err != nil {
		problems = append(problems, err)
	}
	base, err := cfg.base(provider)
	if err != nil {
		problems = append(problems, err)
	}
	if cfg.MaxRetries < 0 || cfg.MaxRetries > 10 {
		problems = append(problems, fmt.Errorf("max retries: %d is not between 0 and 10", cfg.MaxRetries))
	}
	if h := cfg.KeyHeader; h != "" && !headerName.MatchString(h) {
		problems = append(problems, fmt.Errorf("key header: %q is not the name of a header", h))
	}
	if cfg.MaxRetryDelay < 0 || cfg.RequestTimeout < 0 || cfg.MaxResponse < 0 {
		problems = append(problems, errors.New("max retry delay, request timeout and max response must not be negative"))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("openai model: %w", errors.Join(problems...))
	}
	if cfg.MaxRetryDelay == 0 {
		cfg.MaxRetryDelay = DefaultMaxRetryDelay
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.MaxResponse == 0 {
		cfg.MaxResponse = DefaultMaxResponse
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = endpoint.OwnClient()
	}
	return &Model{
		cfg:      cfg,
		provider: provider.at(base),
		base:     base,
		host:     base.Hostname(),
		client: &endpoint.Client{
			HTTP:     endpoint.SameOrigin(cfg.HTTPClient),
			Timeout:  cfg.RequestTimeout,
			MaxBody:  cfg.MaxResponse,
			Retries:  cfg.MaxRetries,
			MaxDelay: cfg.MaxRetryDelay,
		},
	}, nil
}

// provider is whose endpoint cfg means.
func (cfg *Config) provider() (Provider, error) {
	name := cfg.Provider
	switch {
	case name == "" && cfg.BaseURL == "":
		name = "openai"
	case name == "":
		name = ownerOf(cfg.BaseURL)
	}
	p, ok := LookupProvider(name)
	if !ok {
		return p, fmt.Errorf("provider: %q does not speak this protocol, or by another name", name)
	}
	return p, nil
}

func (cfg *Config) base(p Provider) (*url.URL, error) {
	text := cfg.BaseURL
	if text == "" {
		if text = p.BaseURL; text == "" {
			return nil, fmt.Errorf("base_url: %s has no common endpoint: it must be given", p.Name)
		}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil: // its text would quote the URL, and with it perhaps a password
		return nil, errors.New("base_url: not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("base_url: want http:// or https:// and a host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("base_url: must have no user, query or fragment; keys are given by reference")
	}
	return u, nil
}

// Generate asks the endpoint for the next turn. What the endpoint refuses of
// the standard parameters is left out, and asked again without: nothing has
// been generated by then.
func (m *Model) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key, err := model.ResolveKey(ctx, m.cfg.Key)
	if err != nil {
		return nil, err
	}
	target, header, err := m.target(req.Model, key)
	if err != nil {
		return nil, err
	}
	for tries := 0; ; tries++ {
		w, err := m.wire(req, onDelta != nil)
		if err != nil {
			return nil, model.Errorf(model.ErrBadRequest, "build the request: %w", err)
		}
		res, err := m.client.Post(ctx, target, header, w.body)
		if err != nil {
			return nil, m.failure(ctx, err, key)
		}
		if res.StatusCode < 400 {
			return m.answer(ctx, req, w, res, key, onDelta)
		}
		r := refusal(res)
		if tries < maxRefusals && m.refusals.learn(req.Model, w, r) {
			continue
		}
		return nil, m.failure(ctx, r, key)
	}
}

func (m *Model) answer(ctx context.Context, req *model.Request, w *wire, res *http.Response, key string, onDelta func(model.Delta) error) (*model.Response, error) {
	defer res.Body.Close()
	turn, err := m.read(res, w.stream, onDelta)
	var callback callbackError
	switch {
	case errors.As(err, &callback):
		return nil, callback.error
	case err != nil:
		return nil, m.failure(ctx, err, key)
	}
	out, err := turn.response(req)
	if err != nil {
		return nil, err
	}
	out.Dropped = w.dropped
	if out.Message.Provider, err = m.pack(turn); err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "the answer: %w", err)
	}
	if m.provider.Name != "custom" {
		out.Provider = m.provider.Name
	}
	return out, nil
}

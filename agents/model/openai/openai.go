package openai

import (
	"cmp"
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

// DefaultAPIVersion is the default of [Config].APIVersion.
const DefaultAPIVersion = "2024-10-21"

// Config configures a [Model].
type Config struct {
	// Provider is the endpoint's provider, by its name in AAIF's model.provider: one of
	// [Providers]. Default: the provider whose own host BaseURL has; openai if BaseURL is empty;
	// otherwise custom.
	Provider string

	// BaseURL is the URL of the endpoint without /chat/completions. It is http or https, without
	// user, query and fragment. Default: the provider's own; azure_openai and custom have none.
	//
	// For Azure it is the URL of the resource, https://NAME.openai.azure.com: the model of a
	// request is then the name of a deployment. It may also end with /deployments/NAME, or with
	// /openai/v1, which needs no APIVersion.
	BaseURL string

	// APIVersion is the api-version of azure_openai. Default DefaultAPIVersion. It has no effect
	// for other providers and for /openai/v1.
	APIVersion string

	// KeyHeader is the header with the key. Default: Authorization, as a bearer token; for
	// azure_openai api-key. For azure_openai, Authorization means that Key returns tokens of
	// Microsoft Entra.
	KeyHeader string

	// Key returns the API key. Each Generate calls it once, so concurrent calls of Generate call it
	// concurrently. An error that is a *model.Error becomes Generate's, as an ErrUnavailable of a
	// vault that does not answer; the text of any other becomes part of an ErrAuth. With nil, or
	// for an empty key, no key is sent.
	Key func(ctx context.Context) (string, error)

	// HTTPClient sends the requests. Default: a client of this Model's own with the settings of the
	// standard library's transport, which uses the usual proxy variables. A client with a Timeout
	// would break off streams.
	HTTPClient *http.Client

	// RequestTimeout bounds a request including its whole stream. Default 10 minutes. A request is
	// not retried here: the agent's runtime does that (AAIF runtime.max_retries).
	RequestTimeout time.Duration

	// MaxResponse bounds the bytes of an answer's body. Default 32 MiB.
	MaxResponse int64
}

// Model calls the models of one endpoint. Make it with [New].
type Model struct {
	cfg      Config
	provider Provider
	base     *url.URL
	client   *endpoint.Client
	refusals model.Refusals
}

// New returns a Model, or all errors in cfg. It does no I/O.
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
	if h := cfg.KeyHeader; h != "" && !headerName.RE().MatchString(h) {
		problems = append(problems, fmt.Errorf("key header: %q is not the name of a header", h))
	}
	if cfg.RequestTimeout < 0 || cfg.MaxResponse < 0 {
		problems = append(problems, errors.New("request timeout and max response must not be negative"))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("openai model: %w", errors.Join(problems...))
	}
	return &Model{
		cfg:      cfg,
		provider: provider.at(base),
		base:     base,
		client: &endpoint.Client{
			HTTP:    endpoint.SameOrigin(cfg.HTTPClient),
			Host:    base.Hostname(),
			Timeout: cmp.Or(cfg.RequestTimeout, endpoint.DefaultTimeout),
			MaxBody: cmp.Or(cfg.MaxResponse, endpoint.DefaultMaxBody),
		},
	}, nil
}

// provider returns the provider of the endpoint.
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
		return p, fmt.Errorf("provider: %q does not speak this protocol, or has another name here", name)
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
	return endpoint.ParseBase(text)
}

// Generate requests the next turn from the endpoint. If the endpoint refuses a standard parameter,
// Generate sends the request again without it; a refused request has not generated anything.
func (m *Model) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := cmp.Or(req.Validate(), ctx.Err()); err != nil {
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
			return nil, m.client.Failure(ctx, err, key)
		}
		if res.StatusCode < 400 {
			return m.answer(ctx, req, w, res, key, onDelta)
		}
		r := refusal(res)
		if tries < maxRefusals && m.learn(req.Model, w, r) {
			continue
		}
		return nil, m.client.Failure(ctx, r, key)
	}
}

func (m *Model) answer(ctx context.Context, req *model.Request, w *wire, res *http.Response, key string, onDelta func(model.Delta) error) (*model.Response, error) {
	defer res.Body.Close()
	turn, err := m.read(res, w.stream, onDelta)
	if err != nil {
		return nil, m.client.Failure(ctx, err, key)
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

package anthropic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/aeemesh/aeemesh/agents/model"
)

// DefaultBaseURL is Anthropic's own endpoint.
const DefaultBaseURL = "https://api.anthropic.com"

// The other defaults of [Config].
const (
	DefaultMaxTokens      = 8192
	DefaultRequestTimeout = 10 * time.Minute
	DefaultMaxResponse    = 32 << 20 // bytes
)

// Config says where the endpoint is and how to treat it.
type Config struct {
	// BaseURL of the endpoint, up to and without /v1/messages; a /v1 at its end
	// is taken off. http or https, without user, query and fragment. Default
	// DefaultBaseURL.
	BaseURL string

	// Key returns the API key. It is called once for each Generate, at most as
	// often as Generate at once, and its error's text becomes part of an
	// ErrAuth. Nil, or an empty key, sends none.
	Key func(ctx context.Context) (string, error)

	// HTTPClient carries the requests; its CheckRedirect is not asked. Default:
	// one of the Model's own, on the standard library's transport, which heeds
	// the usual proxy variables. A client with a Timeout would cut streams.
	HTTPClient *http.Client

	// MaxTokens of an answer where the request has none. Default 8192.
	MaxTokens int

	// Betas are the values of the header anthropic-beta, which opens features
	// that params.extended may ask for.
	Betas []string

	// RequestTimeout bounds one request, its whole stream included. Default 10
	// minutes; the context of Generate bounds all requests together.
	RequestTimeout time.Duration

	// MaxResponse bounds the bytes of an answer's body. Default 32 MiB.
	MaxResponse int64
}

// Model is an endpoint. Make it with [New].
type Model struct {
	cfg      Config
	host     string
	client   anthropic.Client
	refusals model.Refusals
}

// New returns a Model, or all that is wrong with cfg. It does no I/O.
func New(cfg Config) (*Model, error) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	var problems []error
	u, err := url.Parse(cfg.BaseURL)
	switch {
	case err != nil: // its text would quote the URL, and with it perhaps a password
		problems = append(problems, errors.New("base_url: not a URL"))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		problems = append(problems, errors.New("base_url: want http:// or https:// and a host"))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		problems = append(problems, errors.New("base_url: must have no user, query or fragment; keys are given by reference"))
	}
	if cfg.MaxTokens < 0 || cfg.RequestTimeout < 0 || cfg.MaxResponse < 0 {
		problems = append(problems, errors.New("max tokens, request timeout and max response must not be negative"))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("anthropic model: %w", errors.Join(problems...))
	}
	if cfg.MaxTokens == 0 {
		cfg.MaxTokens = DefaultMaxTokens
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.MaxResponse == 0 {
		cfg.MaxResponse = DefaultMaxResponse
	}
	carrier := http.Client{}
	if cfg.HTTPClient != nil {
		carrier = *cfg.HTTPClient
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		carrier.Transport = t.Clone()
	}
	// The standard library keeps Authorization from another host, but not the
	// header that this API has its key in.
	carrier.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	opts := []option.RequestOption{
		option.WithBaseURL(strings.TrimSuffix(strings.TrimRight(cfg.BaseURL, "/"), "/v1")),
		option.WithHTTPClient(&carrier),
		option.WithMaxRetries(0),
		option.WithRequestTimeout(cfg.RequestTimeout),
		option.WithMiddleware(limitBody(cfg.MaxResponse)),
	}
	if len(cfg.Betas) > 0 {
		opts = append(opts, option.WithHeader("anthropic-beta", strings.Join(cfg.Betas, ",")))
	}
	// A client that is put together here, unlike NewClient's, takes nothing
	// from the environment.
	return &Model{cfg: cfg, host: u.Hostname(), client: anthropic.Client{Options: opts}}, nil
}

// Generate asks the endpoint for the next turn.
func (m *Model) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a, err := m.newAsk(req, onDelta)
	if err != nil {
		return nil, model.Errorf(model.ErrBadRequest, "build the request: %w", err)
	}
	key, err := model.ResolveKey(ctx, m.cfg.Key)
	if err != nil {
		return nil, err
	}
	for {
		err := m.once(ctx, a, key)
		var refused *refusedError
		switch {
		case errors.As(err, &refused) && a.concede(refused.report):
		case errors.As(err, &refused):
			return nil, refused.error
		case err != nil:
			return nil, err
		case a.turn.stop != anthropic.StopReasonPauseTurn:
			return a.response()
		case a.pauses == maxPauses:
			return nil, model.Errorf(model.ErrUnavailable, "the provider paused the turn more than %d times", maxPauses)
		default:
			a.pauses++
		}
	}
}

// maxPauses bounds how often a turn that the provider pauses is asked on.
const maxPauses = 8

// once sends one request and reads its answer into a.turn.
func (m *Model) once(ctx context.Context, a *ask, key string) error {
	body, err := a.body()
	if err != nil {
		return model.Errorf(model.ErrBadRequest, "build the request: %w", err)
	}
	opts := []option.RequestOption{}
	if key != "" {
		opts = append(opts, option.WithAPIKey(key))
	}
	var res *http.Response
	if err := m.client.Post(ctx, "v1/messages", body, &res, opts...); err != nil {
		return m.failure(ctx, res, err, key)
	}
	defer res.Body.Close()
	err = a.turn.read(res)
	var callback callbackError
	switch {
	case errors.As(err, &callback):
		return callback.error
	case err != nil:
		return m.failure(ctx, nil, err, key)
	}
	return nil
}

// limitBody lets at most n bytes of a response's body through.
func limitBody(n int64) option.Middleware {
	return func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		res, err := next(req)
		if res != nil && res.Body != nil {
			res.Body = model.LimitBody(res.Body, n)
		}
		return res, err
	}
}

package anthropic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// DefaultBaseURL is Anthropic's own endpoint.
const DefaultBaseURL = "https://api.anthropic.com"

// DefaultMaxTokens is the length of an answer where [Config].MaxTokens is 0.
const DefaultMaxTokens = 8192

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
	target   string
	client   *endpoint.Client
	refusals model.Refusals
}

// New returns a Model, or all that is wrong with cfg. It does no I/O.
func New(cfg Config) (*Model, error) {
	cfg.BaseURL = cmp.Or(cfg.BaseURL, DefaultBaseURL)
	var problems []error
	u, err := endpoint.ParseBase(cfg.BaseURL)
	if err != nil {
		problems = append(problems, err)
	}
	if cfg.MaxTokens < 0 || cfg.RequestTimeout < 0 || cfg.MaxResponse < 0 {
		problems = append(problems, errors.New("max tokens, request timeout and max response must not be negative"))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("anthropic model: %w", errors.Join(problems...))
	}
	cfg.MaxTokens = cmp.Or(cfg.MaxTokens, DefaultMaxTokens)
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	u.ForceQuery = false
	return &Model{
		cfg:    cfg,
		target: u.JoinPath("v1/messages").String(),
		client: &endpoint.Client{
			HTTP:    endpoint.NoRedirects(cfg.HTTPClient),
			Host:    u.Hostname(),
			Timeout: cmp.Or(cfg.RequestTimeout, endpoint.DefaultTimeout),
			MaxBody: cmp.Or(cfg.MaxResponse, endpoint.DefaultMaxBody),
		},
	}, nil
}

// Generate asks the endpoint for the next turn.
func (m *Model) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := cmp.Or(req.Validate(), ctx.Err()); err != nil {
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
		body, err := a.body()
		if err != nil {
			return nil, model.Errorf(model.ErrBadRequest, "build the request: %w", err)
		}
		err = m.once(ctx, a, body, key)
		var refused *report
		switch {
		case errors.As(err, &refused) && a.concede(refused):
		case err != nil:
			return nil, m.client.Failure(ctx, err, key)
		case a.turn.stop != stopPause:
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
func (m *Model) once(ctx context.Context, a *ask, body []byte, key string) error {
	header := make(http.Header)
	header.Set("Anthropic-Version", apiVersion)
	if len(m.cfg.Betas) > 0 {
		header.Set("Anthropic-Beta", strings.Join(m.cfg.Betas, ","))
	}
	if key != "" {
		header.Set("X-Api-Key", key)
	}
	res, err := m.client.Post(ctx, m.target, header, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 400 {
		return refusal(res)
	}
	return a.turn.read(res, m.client.MaxBody)
}

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

// DefaultMaxTokens is the default of [Config].MaxTokens.
const DefaultMaxTokens = 8192

// Config configures a [Model].
type Config struct {
	// BaseURL is the URL of the endpoint without /v1/messages; a /v1 at its end is removed. It is
	// http or https, without user, query and fragment. Default DefaultBaseURL.
	BaseURL string

	// Key returns the API key. Each Generate calls it once, so concurrent calls of Generate call it
	// concurrently. An error that is a *model.Error becomes Generate's, as an ErrUnavailable of a
	// vault that does not answer; the text of any other becomes part of an ErrAuth. With nil, or
	// for an empty key, no key is sent.
	Key func(ctx context.Context) (string, error)

	// HTTPClient sends the requests; its CheckRedirect is not used. Default: a client of this
	// Model's own with the settings of the standard library's transport, which uses the usual proxy
	// variables. A client with a Timeout would break off streams.
	HTTPClient *http.Client

	// MaxTokens bounds an answer if the request sets no bound. Default 8192.
	MaxTokens int

	// Betas are the values of the header anthropic-beta, which enables features for
	// params.extended.
	Betas []string

	// RequestTimeout bounds one request including its whole stream. Default 10 minutes. The context
	// of Generate bounds all its requests together.
	RequestTimeout time.Duration

	// MaxResponse bounds the bytes of an answer's body. Default 32 MiB.
	MaxResponse int64
}

// Model calls the models of one endpoint. Make it with [New].
type Model struct {
	cfg      Config
	target   string
	client   *endpoint.Client
	refusals model.Refusals
}

// New returns a Model, or all errors in cfg. It does no I/O.
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

// Generate requests the next turn from the endpoint.
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
		case errors.As(err, &refused) && a.retryWithoutRefused(refused):
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

// maxPauses bounds how often Generate continues a turn that the provider pauses.
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

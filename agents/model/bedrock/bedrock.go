package bedrock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// Config configures a [Model].
type Config struct {
	// Region is the AWS region, such as eu-central-1. It is required with Key; without Key, the
	// default chain may provide it.
	Region string

	// BaseURL replaces the service's own endpoint in Region, by a private endpoint or a proxy. It
	// is http or https, without user, query and fragment.
	BaseURL string

	// Key returns the credentials, in one of the forms that the package comment lists. Each
	// Generate calls it once, so concurrent calls of Generate call it concurrently. An error that is
	// a *model.Error becomes Generate's, as an ErrUnavailable of a vault that does not answer; the
	// text of any other becomes part of an ErrAuth. Nil means AWS's default chain.
	Key func(ctx context.Context) (string, error)

	// HTTPClient sends the requests; its CheckRedirect is not used. Default: a client of this
	// Model's own with the settings of the standard library's transport, which uses the usual proxy
	// variables. A client with a Timeout would break off streams.
	HTTPClient *http.Client

	// RequestTimeout bounds one request including its whole stream. Default 10 minutes. The context
	// of Generate bounds all its requests together.
	RequestTimeout time.Duration

	// MaxResponse bounds the bytes of an answer's body. Default 32 MiB.
	MaxResponse int64
}

// Model calls the models of one region. Make it with [New].
type Model struct {
	cfg      Config
	client   *endpoint.Client
	refusals model.Refusals

	mu    sync.Mutex
	chain *chain // nil until the default chain has been read
}

var region = pattern.Of(`^[a-z0-9-]{1,63}$`)

// New returns a Model, or all errors in cfg. It does no I/O.
func New(cfg Config) (*Model, error) {
	var problems []error
	if cfg.Region != "" && !region.RE().MatchString(cfg.Region) {
		problems = append(problems, errors.New("region: not the name of one"))
	}
	if cfg.Region == "" && cfg.Key != nil {
		problems = append(problems, errors.New("region: must not be empty"))
	}
	if cfg.BaseURL != "" {
		var err error
		if cfg.BaseURL, err = plain(cfg.BaseURL); err != nil {
			problems = append(problems, err)
		}
	}
	if cfg.RequestTimeout < 0 || cfg.MaxResponse < 0 {
		problems = append(problems, errors.New("request timeout and max response must not be negative"))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("bedrock model: %w", errors.Join(problems...))
	}
	return &Model{cfg: cfg, client: &endpoint.Client{
		HTTP:    endpoint.NoRedirects(cfg.HTTPClient),
		Host:    "the service",
		Timeout: cmp.Or(cfg.RequestTimeout, endpoint.DefaultTimeout),
		MaxBody: cmp.Or(cfg.MaxResponse, endpoint.DefaultMaxBody),
	}}, nil
}

// Generate requests the next turn from the service.
func (m *Model) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := cmp.Or(req.Validate(), ctx.Err()); err != nil {
		return nil, err
	}
	a, err := newAsk(req, &m.refusals, onDelta)
	if err != nil {
		return nil, model.Errorf(model.ErrBadRequest, "build the request: %w", err)
	}
	to, err := m.access(ctx)
	if err != nil {
		return nil, err
	}
	for {
		body, err := a.body()
		if err != nil {
			return nil, model.Errorf(model.ErrBadRequest, "build the request: %w", err)
		}
		err = m.once(ctx, to, a, body)
		var refused *report
		switch {
		case err == nil:
			return a.response()
		case !errors.As(err, &refused) || !a.retryWithoutRefused(refused):
			return nil, m.client.Failure(ctx, err, to.key())
		}
	}
}

// once sends one request and reads its answer into a.turn.
func (m *Model) once(ctx context.Context, to *access, a *ask, body []byte) error {
	if a.turn.onDelta == nil || a.refused[streaming] != 0 {
		res, err := m.post(ctx, to, a.req.Model, "converse", jsonType, body)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		return a.turn.whole(res.Body)
	}
	res, err := m.post(ctx, to, a.req.Model, "converse-stream", streamType, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return a.turn.stream(res.Body, to)
}

const (
	jsonType   = "application/json"
	streamType = "application/vnd.amazon.eventstream"
)

// post sends an operation of a model, and returns an answer whose status is below
// 300. The caller closes the answer's body.
func (m *Model) post(ctx context.Context, to *access, modelID, operation, accept string, body []byte) (*http.Response, error) {
	// AWS escapes all characters except letters, digits and -._~. QueryEscape does the same,
	// except for the space.
	id := strings.ReplaceAll(url.QueryEscape(modelID), "+", "%20")
	target := strings.TrimRight(to.base, "/") + "/model/" + id + "/" + operation
	header := http.Header{"Content-Type": {jsonType}, "Accept": {accept}}
	if err := to.sign(ctx, target, header, body); err != nil {
		return nil, err
	}
	res, err := m.client.Post(ctx, target, header, body)
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode < 300:
		return res, nil
	}
	defer res.Body.Close()
	if res.StatusCode < 400 {
		return nil, fmt.Errorf("the server answers with status %d, a redirect; it is not followed", res.StatusCode)
	}
	return nil, refusal(res, to)
}

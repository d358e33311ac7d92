package bedrock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// Config says where the service is and how to treat it.
type Config struct {
	// Region of AWS, such as eu-central-1. Required with Key; without, the
	// default chain may know it.
	Region string

	// BaseURL replaces the service's own endpoint in Region: a private endpoint
	// or a proxy. http or https, without user, query and fragment.
	BaseURL string

	// Key returns the credentials, in one of the forms that the package's
	// documentation tells. It is called once for each Generate, at most as often
	// as Generate at once, and its error's text becomes part of an ErrAuth. Nil
	// means AWS's default chain.
	Key func(ctx context.Context) (string, error)

	// HTTPClient carries the requests; its CheckRedirect is not asked. Default:
	// one of the Model's own, on the standard library's transport, which heeds
	// the usual proxy variables. A client with a Timeout would cut streams.
	HTTPClient *http.Client

	// RequestTimeout bounds one request, its whole stream included. Default 10
	// minutes; the context of Generate bounds all requests together.
	RequestTimeout time.Duration

	// MaxResponse bounds the bytes of an answer's body. Default 32 MiB.
	MaxResponse int64
}

// Model is the service in a region. Make it with [New].
type Model struct {
	cfg      Config
	carrier  *http.Client
	refusals model.Refusals

	mu     sync.Mutex
	client *bedrockruntime.Client // nil until the default chain was read
}

var region = pattern.Of(`^[a-z0-9-]{1,63}$`)

// New returns a Model, or all that is wrong with cfg. It does no I/O.
func New(cfg Config) (*Model, error) {
	var problems []error
	if cfg.Region != "" && !region.RE().MatchString(cfg.Region) {
		problems = append(problems, errors.New("region: not the name of one"))
	}
	if cfg.Region == "" && cfg.Key != nil {
		problems = append(problems, errors.New("region: must not be empty"))
	}
	if cfg.BaseURL != "" {
		if _, err := endpoint.ParseBase(cfg.BaseURL); err != nil {
			problems = append(problems, err)
		}
	}
	if cfg.RequestTimeout < 0 || cfg.MaxResponse < 0 {
		problems = append(problems, errors.New("request timeout and max response must not be negative"))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("bedrock model: %w", errors.Join(problems...))
	}
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, endpoint.DefaultTimeout)
	cfg.MaxResponse = cmp.Or(cfg.MaxResponse, endpoint.DefaultMaxBody)
	m := &Model{cfg: cfg, carrier: carrier(cfg)}
	if cfg.Key != nil {
		m.client = bedrockruntime.New(bedrockruntime.Options{Region: cfg.Region}, m.options)
	}
	return m, nil
}

// options are those of every client, whatever its configuration says.
func (m *Model) options(o *bedrockruntime.Options) {
	o.HTTPClient = m.carrier
	o.Retryer = aws.NopRetryer{}
	if m.cfg.BaseURL != "" {
		o.BaseEndpoint = aws.String(m.cfg.BaseURL)
	}
	if m.cfg.Key != nil { // then nothing comes from the environment
		o.BearerAuthTokenProvider, o.AuthSchemePreference = nil, nil
		return
	}
	if o.Credentials != nil {
		o.Credentials = marked{o.Credentials}
	}
}

// Generate asks the service for the next turn.
func (m *Model) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := cmp.Or(req.Validate(), ctx.Err()); err != nil {
		return nil, err
	}
	a, err := newAsk(req, &m.refusals, onDelta)
	if err != nil {
		return nil, model.Errorf(model.ErrBadRequest, "build the request: %w", err)
	}
	client, sign, secrets, err := m.credentials(ctx)
	if err != nil {
		return nil, err
	}
	for {
		err := m.once(ctx, client, sign, a)
		var callback model.CallbackError
		switch {
		case err == nil:
			return a.response()
		case errors.As(err, &callback):
			return nil, callback.Err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !a.concede(err):
			return nil, m.failure(err, secrets)
		}
	}
}

// once sends one request and reads its answer into a.turn.
func (m *Model) once(ctx context.Context, client *bedrockruntime.Client, sign func(*bedrockruntime.Options), a *ask) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.RequestTimeout, errTimeout)
	defer cancel()
	err := a.send(ctx, client, sign)
	if err != nil && context.Cause(ctx) == errTimeout {
		return errTimeout
	}
	return err
}

var errTimeout = errors.New("the request took too long")

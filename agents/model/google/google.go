package google

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// The providers, as AAIF's model.provider names them.
const (
	Gemini = "google"    // the Gemini API, by an API key
	Vertex = "vertex_ai" // Vertex AI, by a project and a token, or by an API key alone
)

// The defaults of [Config].
const (
	DefaultBaseURL  = "https://generativelanguage.googleapis.com"
	DefaultLocation = "global"
)

// Config configures a [Model].
type Config struct {
	// Provider is Gemini or Vertex. Default Gemini.
	Provider string

	// BaseURL is the URL of the API; it may end with the version, as in /v1beta. It is http or
	// https, without user, query and fragment. Default DefaultBaseURL, and for Vertex the endpoint
	// of Location.
	BaseURL string

	// APIVersion is the version of the API. Default v1beta, for Vertex v1beta1.
	APIVersion string

	// Project and Location are for Vertex: the project that is billed, and where the model runs
	// (us-central1, europe-west4, eu, global). The default of Location is DefaultLocation. With a
	// Key instead of a Token neither is needed.
	Project, Location string

	// Key returns an API key, and Token an OAuth 2 access token. Each Generate calls them once, so
	// concurrent calls of Generate call them concurrently. An error that is a *model.Error becomes
	// Generate's, as an ErrUnavailable of a vault that does not answer; the text of any other
	// becomes part of an ErrAuth. Gemini uses Key, Vertex one of the two; with nil none is sent.
	// [Credentials] makes a Token from Google's application default credentials.
	Key   func(ctx context.Context) (string, error)
	Token func(ctx context.Context) (string, error)

	// HTTPClient sends the requests. Default: a client of this Model's own with the settings of the
	// standard library's transport, which uses the usual proxy variables. A client with a Timeout
	// would break off streams.
	HTTPClient *http.Client

	// RequestTimeout bounds one request including its whole stream. Default 10 minutes. The context
	// of Generate bounds all its requests together.
	RequestTimeout time.Duration

	// MaxResponse bounds the bytes of an answer's body. Default 32 MiB.
	MaxResponse int64
}

// Model calls the models of the API. Make it with [New].
type Model struct {
	cfg      Config
	base     *url.URL // with the API's version
	client   *endpoint.Client
	refusals model.Refusals
}

// New returns a Model, or all errors in cfg. It does no I/O.
func New(cfg Config) (*Model, error) {
	cfg.Provider = cmp.Or(cfg.Provider, Gemini)
	var problems []error
	if cfg.Provider != Gemini && cfg.Provider != Vertex {
		problems = append(problems, fmt.Errorf("provider: %q is neither %s nor %s", cfg.Provider, Gemini, Vertex))
	}
	problems = append(problems, cfg.vertex()...)
	base, err := cfg.base()
	if err != nil {
		problems = append(problems, err)
	}
	if cfg.Key != nil && cfg.Token != nil {
		problems = append(problems, errors.New("key and token: only one of them may be given"))
	}
	if cfg.RequestTimeout < 0 || cfg.MaxResponse < 0 {
		problems = append(problems, errors.New("request timeout and max response must not be negative"))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("google model: %w", errors.Join(problems...))
	}
	return &Model{
		cfg:  cfg,
		base: base.JoinPath(cfg.APIVersion),
		client: &endpoint.Client{
			HTTP:    endpoint.SameOrigin(cfg.HTTPClient),
			Host:    base.Hostname(),
			Timeout: cmp.Or(cfg.RequestTimeout, endpoint.DefaultTimeout),
			MaxBody: cmp.Or(cfg.MaxResponse, endpoint.DefaultMaxBody),
		},
	}, nil
}

var place = pattern.Of(`^[a-z0-9][a-z0-9.:-]*$`)

// vertex checks and completes the settings of Vertex AI.
func (cfg *Config) vertex() []error {
	var problems []error
	if cfg.Provider != Vertex {
		if cfg.Project != "" || cfg.Location != "" {
			problems = append(problems, fmt.Errorf("project and location: %s has none", Gemini))
		}
		return problems
	}
	if cfg.Project == "" && cfg.Key == nil {
		problems = append(problems, errors.New("project: must be given, or an API key"))
	}
	if cfg.Project != "" && cfg.Location == "" {
		cfg.Location = DefaultLocation
	}
	if cfg.Project == "" {
		cfg.Location = ""
	}
	for _, v := range []string{cfg.Project, cfg.Location} {
		if v != "" && !place.RE().MatchString(v) {
			problems = append(problems, fmt.Errorf("project and location: %q is not a name", v))
		}
	}
	return problems
}

var version = pattern.Of(`^v[0-9][a-z0-9]*$`)

// base returns the base URL without the version of the API, which it moves to
// APIVersion.
func (cfg *Config) base() (*url.URL, error) {
	text := cfg.BaseURL
	switch {
	case text != "":
	case cfg.Provider != Vertex:
		text = DefaultBaseURL
	case cfg.Location == "" || cfg.Location == "global":
		text = "https://aiplatform.googleapis.com"
	case cfg.Location == "us" || cfg.Location == "eu":
		text = "https://aiplatform." + cfg.Location + ".rep.googleapis.com"
	default:
		text = "https://" + cfg.Location + "-aiplatform.googleapis.com"
	}
	u, err := endpoint.ParseBase(text)
	if err != nil {
		return nil, err
	}
	path := strings.TrimSuffix(u.Path, "/")
	if i := strings.LastIndex(path, "/"); i >= 0 && version.RE().MatchString(path[i+1:]) {
		if cfg.APIVersion == "" {
			cfg.APIVersion = path[i+1:]
		}
		path = path[:i]
	}
	if cfg.APIVersion == "" {
		cfg.APIVersion = "v1beta"
		if cfg.Provider == Vertex {
			cfg.APIVersion = "v1beta1"
		}
	}
	if !version.RE().MatchString(cfg.APIVersion) {
		return nil, fmt.Errorf("api version: %q is not one", cfg.APIVersion)
	}
	u.Path, u.RawPath, u.ForceQuery = path+"/", "", false
	return u, nil
}

// Generate requests the model's next turn. Standard parameters that the model
// refuses are left out, and the request is sent again; a refused request has
// not generated anything.
func (m *Model) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := cmp.Or(req.Validate(), ctx.Err()); err != nil {
		return nil, err
	}
	secret, header, err := m.credential(ctx)
	if err != nil {
		return nil, err
	}
	target, err := m.target(req.Model, onDelta != nil)
	if err != nil {
		return nil, err
	}
	without := m.known(req)
	for tries := 0; ; tries++ {
		body, dropped, err := m.body(req, without)
		if err != nil {
			return nil, model.Errorf(model.ErrBadRequest, "build the request: %w", err)
		}
		t := &turn{onDelta: onDelta}
		if err = m.send(ctx, target, header, body, t); err != nil {
			if more := refused(err, req, without); more != 0 && tries < maxRefusals {
				without |= more
				m.keep(req, more)
				continue
			}
			return nil, m.client.Failure(ctx, err, secret)
		}
		out, err := t.response(req)
		if err != nil {
			return nil, err
		}
		out.Dropped, out.Provider = dropped, m.cfg.Provider
		return out, nil
	}
}

// send sends the request once, and reads the answer into t.
func (m *Model) send(ctx context.Context, target string, header http.Header, body []byte, t *turn) error {
	header = header.Clone()
	header.Set("Accept", "*/*")
	header.Set("X-Server-Timeout", m.patience(ctx))
	res, err := m.client.Post(ctx, target, header, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode < 200 || res.StatusCode > 299:
		return reportOf(res)
	case t.onDelta != nil:
		return t.stream(res, m.client.MaxBody)
	}
	return t.whole(res)
}

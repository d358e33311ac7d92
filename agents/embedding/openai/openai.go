package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/embedding"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// DefaultBatch is how many texts one request has where [Config].Batch is 0.
const DefaultBatch = 64

const (
	maxResponse = 64 << 20
	maxText     = 16 << 10 // of one text
)

// Config says where the endpoint is and which model it runs.
type Config struct {
	// Provider is the first part of the embedder's name. It must not be empty.
	Provider string
	// BaseURL is the endpoint's URL without /embeddings. It must not be empty.
	BaseURL string
	// Model is the name of the model. It must not be empty.
	Model string
	// Batch is the maximum number of texts in one request. Default DefaultBatch.
	Batch int
	// Key returns the API key, once for each Embed. Nil, or an empty key, sends none. Its errors
	// become those of [model.KeyFailure].
	Key func(ctx context.Context) (string, error)
	// KeyHeader is the header that carries the key. Default Authorization.
	KeyHeader string
	// HTTPClient carries the requests. Default: a client of the embedder's own.
	HTTPClient *http.Client
	// MaxRetries is how often a request is tried again. Default 0.
	MaxRetries int
	// RequestTimeout bounds one try. Default 1 minute.
	RequestTimeout time.Duration
}

type embedder struct {
	cfg    Config
	target string
	client *endpoint.Client
}

// New returns an embedder, or an error if cfg is not valid. It does no I/O.
func New(cfg Config) (embedding.Embedder, error) {
	u, err := url.Parse(cfg.BaseURL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("openai embedder: base_url must be http or https, without user, query and fragment")
	case cfg.Provider == "" || cfg.Model == "":
		return nil, errors.New("openai embedder: the provider and the model must be named")
	case cfg.Batch < 0 || cfg.MaxRetries < 0 || cfg.RequestTimeout < 0:
		return nil, errors.New("openai embedder: numbers must not be negative")
	}
	cfg.Batch = cmp.Or(cfg.Batch, DefaultBatch)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, time.Minute)
	cfg.KeyHeader = cmp.Or(cfg.KeyHeader, "Authorization")
	return &embedder{cfg: cfg, target: u.JoinPath("embeddings").String(), client: &endpoint.Client{
		HTTP: endpoint.SameOrigin(cfg.HTTPClient), Host: u.Hostname(), Timeout: cfg.RequestTimeout, MaxBody: maxResponse, Retries: cfg.MaxRetries,
	}}, nil
}

// Name is the provider and the model.
func (e *embedder) Name() string { return e.cfg.Provider + "/" + e.cfg.Model }

// Embed implements [embedding.Embedder]. A long text is cut.
func (e *embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if err := ctx.Err(); err != nil || len(texts) == 0 {
		return nil, err
	}
	key, err := model.ResolveKey(ctx, e.cfg.Key)
	if err != nil {
		return nil, err
	}
	var all [][]float32
	total := len(texts)
	for len(texts) > 0 {
		n := min(e.cfg.Batch, len(texts))
		vectors, err := e.batch(ctx, texts[:n], key)
		if err != nil {
			return nil, err
		}
		all, texts = append(all, vectors...), texts[n:]
	}
	if err := embedding.Units(all, total); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name(), err)
	}
	return all, nil
}

func (e *embedder) batch(ctx context.Context, texts []string, key string) ([][]float32, error) {
	body, err := json.Marshal(struct {
		Model  string   `json:"model"`
		Input  []string `json:"input"`
		Format string   `json:"encoding_format"`
	}{e.cfg.Model, embedding.Sendable(texts, maxText), "float"})
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if key != "" {
		if strings.EqualFold(e.cfg.KeyHeader, "Authorization") {
			header.Set("Authorization", "Bearer "+key)
		} else {
			header.Set(e.cfg.KeyHeader, key)
		}
	}
	res, err := e.client.Post(ctx, e.target, header, body)
	var data []byte
	if err == nil {
		defer res.Body.Close()
		data, err = io.ReadAll(res.Body)
	}
	if err != nil {
		return nil, e.client.Failure(ctx, err, key)
	}
	if res.StatusCode >= 300 {
		return nil, &model.Error{Kind: kind(res.StatusCode), Status: res.StatusCode, RetryAfter: model.RetryAfter(res.Header, time.Now())}
	}
	var answer struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "the answer is not an embeddings answer")
	}
	if len(answer.Data) != len(texts) {
		return nil, fmt.Errorf("%w: %d for %d texts", embedding.ErrBadVectors, len(answer.Data), len(texts))
	}
	vectors := make([][]float32, len(texts))
	for _, d := range answer.Data {
		if d.Index < 0 || d.Index >= len(vectors) || vectors[d.Index] != nil {
			return nil, fmt.Errorf("%w: index %d is not of a text, or there twice", embedding.ErrBadVectors, d.Index)
		}
		vectors[d.Index] = d.Embedding
	}
	return vectors, nil
}

func kind(status int) model.Kind {
	switch {
	case status == 401 || status == 403:
		return model.ErrAuth
	case status == 429 || status == 402:
		return model.ErrRateLimited
	case status >= 500 || status == 408 || status == 409:
		return model.ErrUnavailable
	case status == 413:
		return model.ErrContextTooLong
	}
	return model.ErrBadRequest
}

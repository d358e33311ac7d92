package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/cert"
	"github.com/aeemesh/aeemesh/envelope/pause"
)

// Client posts JSON to an endpoint. Its fields must not change once it is used.
type Client struct {
	// HTTP sends the requests. It must not be nil.
	HTTP *http.Client

	// Host names the server in errors.
	Host string

	// Timeout bounds one attempt including the body of its answer. It must be positive.
	Timeout time.Duration

	// MaxBody bounds the bytes of an answer's body; reading beyond it fails with
	// [model.ErrAnswerTooLarge].
	MaxBody int64

	// Retries is how often Post retries a request that got no answer, or an answer with status 408,
	// 409, 429 or 5xx. The header X-Should-Retry of an answer (true or false) takes precedence over
	// its status, except over 2xx. An answer that asks for a delay of more than 8 s is not retried.
	// Default 0.
	Retries int
}

// Defaults of Timeout and MaxBody.
const (
	DefaultTimeout = 10 * time.Minute
	DefaultMaxBody = 32 << 20
)

// The delay before the first retry, which doubles with each retry, and the longest delay.
const (
	firstDelay = 500 * time.Millisecond
	maxDelay   = 8 * time.Second
)

// Post sends body, which is JSON, and returns the answer to the last attempt, whatever its status.
// The caller must close the answer's body; the attempt's timeout applies until then. header may
// replace Content-Type, Accept and User-Agent.
//
// The error is the context's if ctx ended, and context.DeadlineExceeded if an attempt timed out,
// which is not retried; otherwise it is the *url.Error of the HTTP client.
func (c *Client) Post(ctx context.Context, target string, header http.Header, body []byte) (*http.Response, error) {
	for retries := 0; ; retries++ {
		res, err := c.try(ctx, target, header, body)
		if retries >= c.Retries || !retryable(res, err) {
			return res, err
		}
		wait, ok := delay(res, retries)
		if !ok {
			return res, err
		}
		if res != nil {
			_ = res.Body.Close() // the answer is not read
		}
		if !pause.For(ctx, wait) {
			return nil, ctx.Err()
		}
	}
}

func (c *Client) try(ctx context.Context, target string, header http.Header, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {"aeemesh"}}
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		cancel()
		return nil, err
	}
	res.Body = &timedBody{model.LimitBody(res.Body, c.MaxBody), cancel}
	return res, nil
}

// timedBody cancels the context of its attempt when it is closed.
type timedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close closes the body.
func (b *timedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// retryable reports whether a retry may have another outcome.
func retryable(res *http.Response, err error) bool {
	if err != nil {
		what, _ := cert.Fault(err, "") // a retry would get the same certificate
		return what == "" && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errElsewhere)
	}
	if res.StatusCode/100 == 2 {
		return false // the model has already generated the answer
	}
	switch res.Header.Get("X-Should-Retry") {
	case "true":
		return true
	case "false":
		return false
	}
	switch res.StatusCode {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return res.StatusCode >= 500
}

// delay returns the delay before the next retry, after this many retries: the one that the answer
// asks for, or else an exponential one, less a random part of up to a quarter, so that clients that
// failed together do not retry together. ok is false if the answer asks for more than maxDelay.
func delay(res *http.Response, retries int) (time.Duration, bool) {
	if res != nil {
		if asked := model.RetryAfter(res.Header, time.Now()); asked > 0 {
			return asked, asked <= maxDelay
		}
	}
	d := min(firstDelay<<min(retries, 20), maxDelay)
	return d - rand.N(d/4+1), true
}

// A Report is an error that a server's answer reports.
type Report interface {
	error
	// Failure converts the report to an error of package model, without the key.
	Failure(key string) *model.Error
}

// Failure converts an error of Post, or of reading the answer, to the error that Generate returns:
// the callback's or the context's own, or one of package model.
func (c *Client) Failure(ctx context.Context, err error, key string) error {
	var callback model.CallbackError
	var r Report
	switch {
	case errors.As(err, &callback):
		return callback.Err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &r):
		return r.Failure(key)
	}
	return model.Unreachable(err, c.Host, c.Timeout, c.MaxBody, key)
}

// MaxName bounds the names that Describe quotes, in bytes.
const MaxName = 64

// Describe gives an error the words of a server's report: its message, and those of its names (a code, a
// type, an id) that are not longer than MaxName. The secrets are removed from them. The message of an
// [model.ErrAuth] is left out, because it may quote a part of the key.
func Describe(e *model.Error, message string, secrets []string, names ...string) *model.Error {
	var parts []string
	if e.Kind != model.ErrAuth && message != "" {
		parts = append(parts, model.Quote(message, secrets...))
	}
	for _, name := range names {
		if name != "" && len(name) <= MaxName {
			parts = append(parts, model.Quote(name, secrets...))
		}
	}
	e.Message = strings.Join(parts, "; ")
	return e
}

// Document reads an answer that is one JSON document. ok is false for a stream of events; if the
// server does not say what it sends, the requested form is assumed. A web page, which another
// server than the API has sent, is an error.
func Document(res *http.Response, stream bool) (body []byte, ok bool, err error) {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if media == "text/html" {
		return nil, false, errors.New("the answer is text/html, neither JSON nor a stream of events: does base_url name the API?")
	}
	if media != "application/json" && !strings.HasSuffix(media, "+json") && (media != "" || stream) {
		return nil, false, nil
	}
	if body, err = io.ReadAll(res.Body); err != nil {
		err = fmt.Errorf("read the answer: %w", err)
	}
	return body, true, err
}

// ParseBase parses the base URL of a configuration. The error does not quote it, because it may
// contain a password.
func ParseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("base_url: not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("base_url: want http:// or https:// and a host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("base_url: must have no user, query or fragment; keys are given by reference")
	}
	return u, nil
}

// errElsewhere is the error of a redirect that a client of [SameOrigin] does not follow.
var errElsewhere = errors.New("it redirects to another origin, which must not get the key")

// SameOrigin returns a copy of a client (of [OwnClient] for nil) that follows redirects only within
// the origin (scheme, host and port) of the request, because net/http would send a header such as
// Api-Key to any host. Within the origin, the client's own CheckRedirect applies.
func SameOrigin(client *http.Client) *http.Client {
	c := copyOf(client)
	then := c.CheckRedirect
	if then == nil {
		then = func(_ *http.Request, via []*http.Request) error {
			if len(via) >= 10 {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		}
	}
	c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if origin(req.URL) != origin(via[0].URL) {
			return errElsewhere
		}
		return then(req, via)
	}
	return c
}

func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// NoRedirects returns a copy of a client (of [OwnClient] for nil) that returns redirects as
// answers.
func NoRedirects(client *http.Client) *http.Client {
	c := copyOf(client)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

func copyOf(client *http.Client) *http.Client {
	if client == nil {
		return OwnClient()
	}
	c := *client
	return &c
}

// OwnClient returns an HTTP client with connections of its own and the settings of the standard
// library's transport, which uses the usual proxy variables.
func OwnClient() *http.Client {
	c := &http.Client{}
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		c.Transport = t.Clone()
	}
	return c
}

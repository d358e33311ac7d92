package bedrock

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// carrier is the HTTP client of a configuration, with bounds on what it brings.
func carrier(cfg Config) *http.Client {
	c := endpoint.NoRedirects(cfg.HTTPClient)
	c.Transport = bounded{cmp.Or(c.Transport, http.DefaultTransport), cfg.MaxResponse}
	return c
}

// bounded bounds the bodies of responses, and keeps those of requests.
type bounded struct {
	http.RoundTripper
	max int64
}

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	req, err := detached(req)
	if err != nil {
		return nil, err
	}
	res, err := b.RoundTripper.RoundTrip(req)
	if err != nil {
		return res, err
	}
	if res.StatusCode >= 300 && res.StatusCode < 400 { // the SDK would read an answer
		res.Body.Close()
		return nil, errRedirect
	}
	res.Body = model.LimitBody(res.Body, b.max)
	if res.Header.Get("Content-Type") != eventStream {
		res.Body = &shallowBody{ReadCloser: res.Body}
	}
	return res, nil
}

// detached is a request whose body is its own. The SDK closes the body that it
// made when the answer begins; a transport that is not quite done with it then
// takes the connection down, and the stream of the answer with it.
func detached(req *http.Request) (*http.Request, error) {
	if req.Body == nil {
		return req, nil
	}
	defer req.Body.Close()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, err = req.GetBody()
	return req, err
}

const eventStream = "application/vnd.amazon.eventstream"

var (
	errTooDeep  = errors.New("the answer nests too deep")
	errRedirect = errors.New("the server redirects, which is not followed")
)

// maxDepth bounds how deep JSON may nest: the SDK's parser recurses.
const maxDepth = 512

// shallowBody lets no JSON through that nests too deep.
type shallowBody struct {
	io.ReadCloser
	depth             int
	inString, escaped bool
}

func (b *shallowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.deeper(p[:n]) {
		return 0, errTooDeep
	}
	return n, err
}

func (b *shallowBody) deeper(p []byte) bool {
	for _, c := range p {
		switch {
		case b.escaped:
			b.escaped = false
		case b.inString && c == '\\':
			b.escaped = true
		case c == '"':
			b.inString = !b.inString
		case b.inString:
		case c == '{' || c == '[':
			if b.depth++; b.depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			b.depth--
		}
	}
	return false
}

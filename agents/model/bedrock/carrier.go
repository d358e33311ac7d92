package bedrock

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// carrier is the HTTP client of a configuration, with bounds on what it brings.
func carrier(cfg Config) *http.Client {
	c := http.Client{}
	if cfg.HTTPClient != nil {
		c = *cfg.HTTPClient
	}
	next := c.Transport
	if next == nil {
		next = http.DefaultTransport
		if t, ok := next.(*http.Transport); ok {
			next = t.Clone()
		}
	}
	c.Transport = bounded{next, cfg.MaxResponse}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
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
	res.Body = &boundedBody{ReadCloser: res.Body, left: b.max, json: res.Header.Get("Content-Type") != eventStream}
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
	errTooLarge = errors.New("the answer exceeds its bound")
	errTooDeep  = errors.New("the answer nests too deep")
	errRedirect = errors.New("the server redirects, which is not followed")
)

// maxDepth bounds how deep JSON may nest: the SDK's parser recurses.
const maxDepth = 512

// boundedBody lets so many bytes through, and no JSON that nests too deep.
type boundedBody struct {
	io.ReadCloser
	left              int64
	json              bool
	depth             int
	inString, escaped bool
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.json && b.deeper(p[:n]) {
		return 0, errTooDeep
	}
	if b.left -= int64(n); b.left < 0 {
		return n - 1, errTooLarge
	}
	return n, err
}

func (b *boundedBody) deeper(p []byte) bool {
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

package google

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
)

// placeholder is the key that the SDK gets; the seam removes it from requests.
const placeholder = "-"

var (
	errElsewhere = errors.New("the server redirects to another origin")
	errTooLarge  = errors.New("the answer exceeds its bound")
)

// exchange is one request and its answer, shared by the seam and the caller.
type exchange struct {
	header, value, secret string // the credential
	body                  []byte // what is sent
	limit                 int64  // maximum size of the answer, in bytes

	status   int
	received http.Header
	answer   bytes.Buffer // the bytes that were read
	broken   error        // why it was not read to its end
}

type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

func (x *exchange) begin() {
	x.status, x.received, x.broken = 0, nil, nil
	x.answer = bytes.Buffer{}
}

// err returns the error of the exchange: an error of reading the answer takes
// precedence over the SDK's.
func (x *exchange) err(sdk error) error {
	if x.broken != nil {
		return x.broken
	}
	return sdk
}

// seam is the transport between the SDK and the network. It sets the request's
// body and credential, and stores and limits the answer's bytes.
type seam struct{ next http.RoundTripper }

func (s seam) RoundTrip(req *http.Request) (*http.Response, error) {
	x, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, errors.New("google: a request without an exchange")
	}
	out := req.Clone(req.Context())
	out.Header.Del("X-Goog-Api-Key")
	if x.header != "" {
		out.Header.Set(x.header, x.value)
	}
	if req.Body != nil {
		_ = req.Body.Close() // it was not sent
	}
	out.Body = io.NopCloser(bytes.NewReader(x.body))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
	out.ContentLength = int64(len(x.body))
	res, err := s.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	x.begin() // this also discards the answer of a redirect
	x.status, x.received = res.StatusCode, res.Header
	res.Body = &kept{ReadCloser: res.Body, x: x, left: x.limit}
	return res, nil
}

// kept is an answer's body. An error of reading it goes to the exchange,
// because the SDK would write it to the process's log.
type kept struct {
	io.ReadCloser
	x    *exchange
	left int64
}

func (k *kept) Read(p []byte) (int, error) {
	if k.x.broken != nil {
		return 0, io.EOF
	}
	if int64(len(p)) > k.left+1 {
		p = p[:k.left+1]
	}
	n, err := k.ReadCloser.Read(p)
	if k.left -= int64(n); k.left < 0 {
		k.x.broken = errTooLarge
		return 0, io.EOF
	}
	k.x.answer.Write(p[:n])
	if err != nil && err != io.EOF {
		k.x.broken = err
		err = io.EOF
	}
	return n, err
}

// Close ignores errors, which have no effect.
func (k *kept) Close() error {
	_ = k.ReadCloser.Close()
	return nil
}

package model

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/cert"
)

// ResolveKey gets an adapter's API key, which is read at each call; "" if there
// is none. Its errors are those of [KeyFailure].
func ResolveKey(ctx context.Context, key func(context.Context) (string, error)) (string, error) {
	if key == nil {
		return "", nil
	}
	k, err := key(ctx)
	if err != nil {
		return "", KeyFailure(ctx, "key", err)
	}
	return strings.TrimSpace(k), nil
}

// KeyFailure returns the error of a call whose credential (what: "key", "token") could not be
// read: the context's own if the context has ended, and an err that is an [*Error] unchanged. Any
// other is an [ErrAuth]. So a function that reads a credential returns an [ErrUnavailable] if a
// retry may help, as when a vault does not answer.
func KeyFailure(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var failed *Error
	if errors.As(err, &failed) {
		return err
	}
	return Errorf(ErrAuth, "resolve the %s: %w", what, err)
}

// LimitBody limits a response's body to n bytes; reading further fails with
// [ErrAnswerTooLarge].
func LimitBody(body io.ReadCloser, n int64) io.ReadCloser { return &limitedBody{body, n} }

// ErrAnswerTooLarge is the error of a body that is larger than [LimitBody]
// permits.
var ErrAnswerTooLarge = errors.New("the answer exceeds its bound")

type limitedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, ErrAnswerTooLarge
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, ErrAnswerTooLarge
	}
	return n, err
}

// Unreachable makes the [ErrUnavailable] of a call that got no complete answer
// and no error of the provider. host is the server, limit the timeout of the
// call, most the maximum size of the answer; the secrets are removed from the
// text.
func Unreachable(err error, host string, limit time.Duration, most int64, secrets ...string) *Error {
	out := &Error{Kind: ErrUnavailable, Err: err}
	var request *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		out.Message = fmt.Sprintf("no complete answer within %s", limit)
	case errors.Is(err, ErrAnswerTooLarge):
		out.Message = fmt.Sprintf("the answer exceeds the bound of %d bytes", most)
	case errors.As(err, &request): // its own text quotes the whole URL
		out.Message = Quote(fmt.Sprintf("cannot reach %s: %s", host, request.Err), secrets...)
		if what, hint := cert.Fault(err, "outbound.ca_file"); what != "" {
			out.Message = fmt.Sprintf("cannot reach %s: %s: %s", host, what, hint)
		}
	default:
		out.Message = Quote(err.Error(), secrets...)
	}
	return out
}

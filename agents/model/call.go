package model

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// ResolveKey gets an adapter's API key, which is read at each call; "" where
// there is none. Its error is an [ErrAuth], or the context's own.
func ResolveKey(ctx context.Context, key func(context.Context) (string, error)) (string, error) {
	if key == nil {
		return "", nil
	}
	k, err := key(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", Errorf(ErrAuth, "resolve the key: %w", err)
	}
	return strings.TrimSpace(k), nil
}

// LimitBody lets at most n bytes of a response's body through, and fails with
// [ErrAnswerTooLarge] behind them.
func LimitBody(body io.ReadCloser, n int64) io.ReadCloser { return &limitedBody{body, n} }

// ErrAnswerTooLarge is how a body that [LimitBody] bounds ends where it is
// larger.
var ErrAnswerTooLarge = errors.New("the answer exceeds its bound")

type limitedBody struct {
	io.ReadCloser
	left int64
}

// Read reads within the bound.
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

// Unreachable is the [ErrUnavailable] of a call that got no whole answer, and no
// words of the provider's either. host is who was asked, limit how long the call
// might take, most how large the answer might be; the secrets are taken out.
func Unreachable(err error, host string, limit time.Duration, most int64, secrets ...string) *Error {
	out := &Error{Kind: ErrUnavailable, Err: err}
	var request *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		out.Message = fmt.Sprintf("no complete answer within %s", limit)
	case errors.Is(err, ErrAnswerTooLarge):
		out.Message = fmt.Sprintf("the answer exceeds the bound of %d bytes", most)
	case errors.As(err, &request): // whose own text quotes the whole URL
		out.Message = Quote(fmt.Sprintf("cannot reach %s: %s", host, request.Err), secrets...)
	default:
		out.Message = Quote(err.Error(), secrets...)
	}
	return out
}

package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream/denial"
)

// Exchange sends a request and returns its first answer. It waits for [RequestTimeout] at most: a
// request that reached a server as it died is never answered. It fails with [ErrDenied] as soon as
// the server reports that the subject is not permitted; such a report comes as an error of the
// connection, not as an answer.
func Exchange(ctx context.Context, nc *nats.Conn, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	ctx, stop := UntilDenied(ctx, nc, msg.Subject+`"`)
	defer stop()
	answer, err := nc.RequestMsgWithContext(ctx, msg)
	if err != nil && errors.Is(context.Cause(ctx), ErrDenied) {
		return nil, context.Cause(ctx)
	}
	return answer, err
}

// Asking calls f, which sends a request to JetStream's API itself. subject, after [Prefix], is the
// beginning of the request's subject; see [UntilDenied]. It fails with [ErrDenied] as soon as the
// server reports that the request is not permitted.
func Asking[T any](ctx context.Context, js natsjs.JetStream, subject string, f func(context.Context) (T, error)) (T, error) {
	ctx, stop := UntilDenied(ctx, js.Conn(), Prefix(js)+subject)
	defer stop()
	v, err := f(ctx)
	if denied := context.Cause(ctx); err != nil && errors.Is(denied, ErrDenied) {
		err = denied
	}
	return v, err
}

// UntilDenied returns a context that ends, with ErrDenied as its cause, when the server
// reports that publishing to a subject with this prefix is not permitted. A quotation
// mark at the end makes it an exact match.
func UntilDenied(ctx context.Context, nc *nats.Conn, subject string) (context.Context, func()) {
	exact, whole := strings.CutSuffix(subject, `"`)
	return denial.Until(ctx, nc, func(d denial.Denial) error {
		if d.Op != denial.Publish || !strings.HasPrefix(d.Subject, exact) || whole && d.Subject != exact {
			return nil
		}
		return fmt.Errorf("%w: %w", ErrDenied, d.Err)
	})
}

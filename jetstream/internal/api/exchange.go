package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Exchange sends a request and returns its first answer. It waits for requestTimeout at
// most: a request that reached a server as it died is never answered. It fails with
// [ErrDenied] as soon as the server reports that the subject is not permitted; such a
// report comes as an error of the connection, not as an answer.
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

// Asking calls f, which sends a request of JetStream's API by itself, to a subject with this
// beginning, after [Prefix]; see [UntilDenied]. It fails with [ErrDenied] as soon as the
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

// denialLook is how often the connection's last error is checked.
const denialLook = 20 * time.Millisecond

// UntilDenied returns a context that ends, with ErrDenied as its cause, when the server
// reports that publishing to a subject with this prefix is not permitted. A quotation
// mark at the end makes it an exact match. It hears every such report of the connection
// ([ears]). It also checks the connection's last error, in case the application has
// replaced the error handler.
func UntilDenied(ctx context.Context, nc *nats.Conn, subject string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	before := nc.LastError()
	quoted, e := `"`+subject, earOf(nc)
	denied := func(err error) bool {
		if ctx.Err() != nil || !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), quoted) {
			return false
		}
		e.tell(err)
		cancel(fmt.Errorf("%w: %w", ErrDenied, err))
		return true
	}
	forget := e.add(func(err error) { denied(err) })
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		now := nc.LastError()
		if !stopped && (now == nil || now == before || !denied(now)) {
			timer.Reset(denialLook)
		}
	}
	mu.Lock()
	timer = time.AfterFunc(denialLook, look)
	mu.Unlock()
	return ctx, func() {
		forget()
		mu.Lock()
		stopped = true
		timer.Stop()
		mu.Unlock()
		cancel(nil)
	}
}

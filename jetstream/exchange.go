package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// exchange makes a request and returns its first answer. It waits for
// requestTimeout at most: a request that a dying server swallowed is never
// answered. It fails with [ErrDenied] as soon as the server says that it does not
// permit the subject, which it says beside the request.
func exchange(ctx context.Context, nc *nats.Conn, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ctx, stop := untilDenied(ctx, nc, msg.Subject+`"`)
	defer stop()
	answer, err := nc.RequestMsgWithContext(ctx, msg)
	if err != nil && errors.Is(context.Cause(ctx), ErrDenied) {
		return nil, context.Cause(ctx)
	}
	return answer, err
}

// denialLook is the time between two looks whether a request was denied.
const denialLook = 20 * time.Millisecond

// untilDenied returns a context that ends, with ErrDenied as its cause, when the
// server reports that it does not permit publishing to a subject that begins so; a
// subject with a quotation mark behind it is meant whole. nats.go keeps the last such
// report of a connection and calls nobody but the application.
func untilDenied(ctx context.Context, nc *nats.Conn, subject string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	before := nc.LastError()
	quoted := `"` + subject
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		now := nc.LastError()
		switch {
		case stopped:
		case now != nil && now != before && errors.Is(now, nats.ErrPermissionViolation) && strings.Contains(now.Error(), quoted):
			denials.note(nc, now)
			cancel(fmt.Errorf("%w: %w", ErrDenied, now))
		default:
			timer.Reset(denialLook)
		}
	}
	mu.Lock()
	timer = time.AfterFunc(denialLook, look)
	mu.Unlock()
	return ctx, func() {
		mu.Lock()
		stopped = true
		timer.Stop()
		mu.Unlock()
		cancel(nil)
	}
}

// denials are the last reports that a request was denied, by connection, that a
// caller has heard of. A connection goes on saying that they are its last error;
// they are not why another request has no answer.
var denials = denialNotes{known: map[*nats.Conn]error{}}

type denialNotes struct {
	mu    sync.Mutex
	known map[*nats.Conn]error
}

func (d *denialNotes) note(nc *nats.Conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for other := range d.known {
		if other.IsClosed() {
			delete(d.known, other)
		}
	}
	d.known[nc] = err
}

func (d *denialNotes) has(nc *nats.Conn, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[nc] == err
}

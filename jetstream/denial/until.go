package denial

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// look is how often the connection's last error is checked, in case the application has
// replaced the error handler.
const look = 20 * time.Millisecond

// Until returns a context that ends when the server reports a denial for which cause does not
// return nil; this is then the context's cause. stop must be called in the end. cause must not
// wait for the connection.
func Until(ctx context.Context, nc *nats.Conn, cause func(Denial) error) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	e := earOf(nc)
	e.hear(nc, nc.LastError()) // it is older
	forget := e.add(func(d Denial) {
		if ctx.Err() != nil {
			return
		}
		if err := cause(d); err != nil {
			e.tell(d.Err)
			cancel(err)
		}
	})
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	mu.Lock()
	timer = time.AfterFunc(look, func() {
		e.hear(nc, nc.LastError())
		mu.Lock()
		defer mu.Unlock()
		if !stopped && ctx.Err() == nil {
			timer.Reset(look)
		}
	})
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

// tell marks a denial as reported to a caller, so that [Why] does not take it for the cause of a
// later timeout.
func (e *ear) tell(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.denials {
		if e.denials[i].Err == err {
			e.denials[i].reported = true
		}
	}
}

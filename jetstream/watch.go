package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Watch calls fn with every record that there is, and from then on with every
// change, until ctx ends; then it returns nil. Calls come one at a time, from
// the goroutine that called Watch.
//
// It survives reconnects, restarts of the server, and the loss and return of
// the bucket: it then reads the bucket anew, so that fn sees what changed
// meanwhile, deletions too, and may see records again that it has seen. A
// record is deleted for fn when it has neither value nor revision any more:
// fn(id, nil, true).
//
// Watch fails at once if the bucket is not there or may not be read, and
// later only when the connection is closed for good.
func (r *Records) Watch(ctx context.Context, fn func(id string, record []byte, deleted bool)) error {
	w := &watch{r: r, fn: fn, known: map[string]bool{}}
	return rewatch(ctx, r.js.Conn(), "watch "+r.bucket, func(status <-chan nats.Status) (bool, error) {
		err := w.once(ctx, status)
		return w.synced, err
	})
}

// rewatch calls once again and again, until ctx ends: at once after it has
// returned nil because the connection came back, and after a pause that grows
// when it failed. It fails if once does before it ever read everything there is,
// and when the connection is closed for good.
func rewatch(ctx context.Context, nc *nats.Conn, what string, once func(<-chan nats.Status) (synced bool, err error)) error {
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	const shortest, longest = 20 * time.Millisecond, 5 * time.Second
	pause := shortest
	for started := false; ; {
		synced, err := once(status)
		switch {
		case ctx.Err() != nil:
			return nil
		case nc.IsClosed():
			return fmt.Errorf("%s: %w", what, nats.ErrConnectionClosed)
		case err != nil && !started && !synced:
			return err
		case err == nil:
			pause = shortest
			continue // reconnected: at once
		}
		started = true
		select {
		case <-ctx.Done():
			return nil
		case <-status:
			pause = shortest
		case <-time.After(pause):
			pause = min(2*pause, longest)
		}
	}
}

type watch struct {
	r      *Records
	fn     func(id string, record []byte, deleted bool)
	known  map[string]bool // ids that fn believes to be there
	synced bool            // it was read to the end once
}

// once reads the bucket from its beginning and follows it. It returns nil when
// the connection came back and it should be read anew.
func (w *watch) once(ctx context.Context, status <-chan nats.Status) error {
	opening, stop := bounded(ctx)
	defer stop()
	kv, err := w.r.handle(opening)
	if err != nil {
		return err
	}
	// The watcher lives as long as its context, so the deadline for opening it
	// cannot be in there.
	watching, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	bound := time.AfterFunc(requestTimeout, func() { cancel(context.DeadlineExceeded) })
	watcher, err := kv.WatchAll(watching)
	if !bound.Stop() {
		err = context.Cause(watching)
	}
	if err != nil {
		return explain(w.r.js.Conn(), err, "watch %s", w.r.bucket)
	}
	defer endWatcher(func() { cancel(nil) }, watcher)
	fresh := map[string]bool{}
	reading := true
	for ctx.Err() == nil { // fn is not called any more once it has ended
		select {
		case <-ctx.Done():
			return nil
		case <-status:
			return nil
		case e, ok := <-watcher.Updates():
			switch {
			case !ok:
				return fmt.Errorf("watch %s: the server ended it", w.r.bucket)
			case e == nil:
				reading, w.synced = false, true
				w.forget(fresh)
			default:
				w.entry(e, fresh, reading)
			}
		}
	}
	return nil
}

// endWatcher ends a watcher by its context. Stopping it would wait for a server
// that may be away. nats.go's reader may be about to hand over another entry:
// it is let go of, or it would wait for ever. The bound is for a connection
// that was closed just when the watcher was made, which nats.go does not tell.
func endWatcher(cancel context.CancelFunc, w natsjs.KeyWatcher) {
	cancel()
	bound := time.NewTimer(time.Second)
	defer bound.Stop()
	for {
		select {
		case _, ok := <-w.Updates():
			if !ok {
				return
			}
		case <-bound.C:
			return
		}
	}
}

func (w *watch) entry(e natsjs.KeyValueEntry, fresh map[string]bool, reading bool) {
	id, err := subject.Unescape(e.Key())
	if err != nil {
		return // not written by us
	}
	if e.Operation() == natsjs.KeyValuePut {
		w.known[id] = true
		if reading {
			fresh[id] = true
		}
		w.fn(id, e.Value(), false)
		return
	}
	delete(fresh, id)
	if w.known[id] {
		delete(w.known, id)
		w.fn(id, nil, true)
	}
}

// forget tells fn of what is not there any more after reading anew.
func (w *watch) forget(fresh map[string]bool) {
	for id := range w.known {
		if !fresh[id] {
			delete(w.known, id)
			w.fn(id, nil, true)
		}
	}
}

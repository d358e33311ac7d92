package jetstream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/mesh/subject"
)

// kvBucket is a KV bucket whose keys are escaped ids, looked up with its first use.
type kvBucket struct {
	js   natsjs.JetStream
	name string

	mu sync.Mutex
	kv natsjs.KeyValue
}

// requestTimeout bounds one request.
const requestTimeout = 5 * time.Second

// oneRequest is the context of one request. The answer can be lost with a connection
// or a leader and then never comes, so that a request must not last as long as the
// task that it is for.
func oneRequest(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}

// bounded bounds what takes several requests, where its context has no deadline.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, requestTimeout)
}

func (b *kvBucket) handle(ctx context.Context) (natsjs.KeyValue, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kv == nil {
		ctx, cancel := oneRequest(ctx)
		defer cancel()
		kv, err := b.js.KeyValue(ctx, b.name)
		if err != nil {
			return nil, b.explain(err, "open %s", b.name)
		}
		b.kv = kv
	}
	return b.kv, nil
}

func (b *kvBucket) explain(err error, format string, args ...any) error {
	return explain(b.js.Conn(), err, format, args...)
}

// list calls each with every entry that there is, in the order in which they
// were last written.
func (b *kvBucket) list(ctx context.Context, each func(id string, e natsjs.KeyValueEntry)) error {
	kv, err := b.handle(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	w, err := kv.WatchAll(ctx, natsjs.IgnoreDeletes())
	if err != nil {
		return b.explain(err, "list %s", b.name)
	}
	defer endWatcher(cancel, w)
	for {
		select {
		case <-ctx.Done():
			return b.explain(ctx.Err(), "list %s", b.name)
		case e, ok := <-w.Updates():
			if !ok {
				return fmt.Errorf("list %s: the server ended it", b.name)
			}
			if e == nil {
				return nil
			}
			if id, err := subject.Unescape(e.Key()); err == nil {
				each(id, e)
			}
		}
	}
}

// watch calls changed with every entry that there is, and from then on with
// every change, until ctx ends; then it returns nil. Calls come one at a time,
// from the goroutine that called it. Entries that were told of and are gone come
// with an operation that is no put, or without an entry, where that was found
// after a reconnect only. The first time that all was read, ready is called, if
// there is one.
//
// It survives reconnects, restarts of the server, and the loss and return of the
// bucket: it then reads the bucket anew, and may tell of entries again. It fails
// at once if the bucket is not there or may not be read, and later only when the
// connection is closed for good.
func (b *kvBucket) watch(ctx context.Context, changed func(id string, e natsjs.KeyValueEntry), ready func()) error {
	w := &bucketWatch{b: b, changed: changed, ready: ready, known: map[string]bool{}}
	return rewatch(ctx, b.js.Conn(), "watch "+b.name, func(status <-chan nats.Status) (bool, error) {
		err := w.once(ctx, status)
		return w.synced, err
	})
}

type bucketWatch struct {
	b       *kvBucket
	changed func(string, natsjs.KeyValueEntry)
	ready   func()
	known   map[string]bool // ids that changed believes to be there
	synced  bool            // it was read to the end once
}

// once reads the bucket from its beginning and follows it. It returns nil when
// the connection came back and it should be read anew.
func (w *bucketWatch) once(ctx context.Context, status <-chan nats.Status) error {
	kv, err := w.b.handle(ctx)
	if err != nil {
		return err
	}
	watcher, end, err := openWatcher(ctx, requestTimeout, func(ctx context.Context) (natsjs.KeyWatcher, error) { return kv.WatchAll(ctx) })
	defer end()
	if err != nil {
		return w.b.explain(err, "watch %s", w.b.name)
	}
	fresh := map[string]bool{}
	for reading := true; ctx.Err() == nil; { // changed is not called any more once it has ended
		select {
		case <-ctx.Done():
			return nil
		case <-status:
			return nil
		case e, ok := <-watcher.Updates():
			switch {
			case !ok:
				return fmt.Errorf("watch %s: the server ended it", w.b.name)
			case e == nil:
				reading = false
				w.forget(fresh)
			default:
				w.entry(e, fresh, reading)
			}
		}
	}
	return nil
}

func (w *bucketWatch) entry(e natsjs.KeyValueEntry, fresh map[string]bool, reading bool) {
	id, err := subject.Unescape(e.Key())
	if err != nil {
		return // not written by us
	}
	if e.Operation() == natsjs.KeyValuePut {
		w.known[id] = true
		if reading {
			fresh[id] = true
		}
		w.changed(id, e)
		return
	}
	delete(fresh, id)
	if w.known[id] {
		delete(w.known, id)
		w.changed(id, e)
	}
}

// forget tells of what is not there any more after reading anew, and that all
// was read.
func (w *bucketWatch) forget(fresh map[string]bool) {
	for id := range w.known {
		if !fresh[id] {
			delete(w.known, id)
			w.changed(id, nil)
		}
	}
	if !w.synced && w.ready != nil {
		w.ready()
	}
	w.synced = true
}

package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Agents are the definitions of agents of a mesh, in [BucketAgents]: a
// [registry.Registry].
type Agents struct {
	js     natsjs.JetStream
	bucket string

	mu sync.Mutex
	kv natsjs.KeyValue // a handle, fetched with the first use
}

var _ registry.Registry = (*Agents)(nil)

// NewAgents returns the definitions of m's mesh. It does no I/O.
func NewAgents(js natsjs.JetStream, m subject.Map) *Agents {
	return &Agents{js: js, bucket: BucketAgents + m.Suffix()}
}

// Put implements [registry.Registry].
func (a *Agents) Put(ctx context.Context, rec registry.Record, after uint64) (uint64, error) {
	data, err := rec.Encode()
	if err != nil {
		return 0, fmt.Errorf("register: %w", err)
	}
	key := rec.Key()
	kv, at, err := a.open(ctx, key)
	if err != nil {
		return 0, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	var revision uint64
	if after == 0 {
		revision, err = kv.Create(ctx, at, data)
	} else {
		revision, err = kv.Update(ctx, at, data, after)
	}
	return revision, a.wrote(err, "register %q in %s", key, a.bucket)
}

// Remove implements [registry.Registry].
func (a *Agents) Remove(ctx context.Context, key string, revision uint64) error {
	kv, at, err := a.open(ctx, key)
	if err != nil {
		return err
	}
	if revision == 0 {
		return fmt.Errorf("remove %q from %s: %w", key, a.bucket, registry.ErrChanged)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return a.wrote(kv.Delete(ctx, at, natsjs.LastRevision(revision)), "remove %q from %s", key, a.bucket)
}

// wrote says what a failed write means.
func (a *Agents) wrote(err error, format string, args ...any) error {
	if errors.Is(err, natsjs.ErrKeyExists) || isWrongSequence(err) {
		return fmt.Errorf(format+": %w", append(args, registry.ErrChanged)...)
	}
	return uncertain(explain(a.js.Conn(), err, format, args...))
}

// Get implements [registry.Registry].
func (a *Agents) Get(ctx context.Context, key string) (registry.Entry, error) {
	kv, at, err := a.open(ctx, key)
	if err != nil {
		return registry.Entry{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	e, err := kv.Get(ctx, at)
	if err != nil {
		return registry.Entry{}, a.missed(err, "get %q from %s", key, a.bucket)
	}
	return entryOf(key, e), nil
}

// At implements [registry.Registry].
func (a *Agents) At(ctx context.Context, key string, revision uint64) (registry.Entry, error) {
	kv, at, err := a.open(ctx, key)
	if err != nil {
		return registry.Entry{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	e, err := kv.GetRevision(ctx, at, revision)
	if err != nil {
		return registry.Entry{}, a.missed(err, "get %q at revision %d from %s", key, revision, a.bucket)
	}
	return entryOf(key, e), nil
}

// History implements [registry.Registry].
func (a *Agents) History(ctx context.Context, key string) ([]registry.Entry, error) {
	kv, at, err := a.open(ctx, key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	all, err := kv.History(ctx, at)
	if err != nil {
		return nil, a.missed(err, "history of %q in %s", key, a.bucket)
	}
	out := make([]registry.Entry, len(all))
	for i, e := range all {
		out[i] = entryOf(key, e)
	}
	return out, nil
}

// missed says what a failed read means.
func (a *Agents) missed(err error, format string, args ...any) error {
	if errors.Is(err, natsjs.ErrKeyNotFound) {
		return fmt.Errorf(format+": %w: %w", append(args, registry.ErrNotFound, ErrNotFound)...)
	}
	return explain(a.js.Conn(), err, format, args...)
}

// List implements [registry.Registry].
func (a *Agents) List(ctx context.Context) ([]registry.Entry, error) {
	kv, err := a.handle(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	w, err := kv.WatchAll(ctx, natsjs.IgnoreDeletes())
	if err != nil {
		return nil, explain(a.js.Conn(), err, "list %s", a.bucket)
	}
	defer endWatcher(cancel, w)
	var all []registry.Entry
	for {
		select {
		case <-ctx.Done():
			return nil, explain(a.js.Conn(), ctx.Err(), "list %s", a.bucket)
		case e, ok := <-w.Updates():
			if !ok {
				return nil, fmt.Errorf("list %s: the server ended it", a.bucket)
			}
			if e == nil {
				return all, nil
			}
			if key, err := subject.Unescape(e.Key()); err == nil {
				all = append(all, entryOf(key, e))
			}
		}
	}
}

// Watch implements [registry.Registry]. It survives what [Records.Watch] does.
func (a *Agents) Watch(ctx context.Context, changed func(registry.Entry), ready func()) error {
	w := &agentsWatch{a: a, changed: changed, ready: ready, known: map[string]bool{}}
	return rewatch(ctx, a.js.Conn(), "watch "+a.bucket, func(status <-chan nats.Status) (bool, error) {
		err := w.once(ctx, status)
		return w.synced, err
	})
}

type agentsWatch struct {
	a       *Agents
	changed func(registry.Entry)
	ready   func()
	known   map[string]bool // keys that are believed to be registered
	synced  bool
}

// once reads the bucket from its beginning and follows it. It returns nil when
// the connection came back and it should be read anew.
func (w *agentsWatch) once(ctx context.Context, status <-chan nats.Status) error {
	opening, stop := bounded(ctx)
	defer stop()
	kv, err := w.a.handle(opening)
	if err != nil {
		return err
	}
	watching, cancel := context.WithCancelCause(ctx) // as long as the watcher, see [watch.once]
	defer cancel(nil)
	bound := time.AfterFunc(requestTimeout, func() { cancel(context.DeadlineExceeded) })
	watcher, err := kv.WatchAll(watching)
	if !bound.Stop() {
		err = context.Cause(watching)
	}
	if err != nil {
		return explain(w.a.js.Conn(), err, "watch %s", w.a.bucket)
	}
	defer endWatcher(func() { cancel(nil) }, watcher)
	fresh := map[string]bool{}
	for reading := true; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			return nil
		case <-status:
			return nil
		case e, ok := <-watcher.Updates():
			switch {
			case !ok:
				return fmt.Errorf("watch %s: the server ended it", w.a.bucket)
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

func (w *agentsWatch) entry(e natsjs.KeyValueEntry, fresh map[string]bool, reading bool) {
	key, err := subject.Unescape(e.Key())
	if err != nil {
		return // not written by us
	}
	entry := entryOf(key, e)
	if entry.Removed {
		delete(fresh, key)
		if !w.known[key] {
			return
		}
		delete(w.known, key)
	} else {
		w.known[key] = true
		if reading {
			fresh[key] = true
		}
	}
	w.changed(entry)
}

// forget tells of what is not there any more after reading anew, and that all
// was read.
func (w *agentsWatch) forget(fresh map[string]bool) {
	for key := range w.known {
		if !fresh[key] {
			delete(w.known, key)
			w.changed(registry.Entry{Key: key, Removed: true})
		}
	}
	if !w.synced && w.ready != nil {
		w.ready()
	}
	w.synced = true
}

// entryOf reads one revision of a key.
func entryOf(key string, e natsjs.KeyValueEntry) registry.Entry {
	out := registry.Entry{Key: key, Revision: e.Revision(), Time: e.Created(), Removed: e.Operation() != natsjs.KeyValuePut}
	if out.Removed {
		return out
	}
	rec, err := registry.Decode(e.Value())
	if err == nil && rec.Key() != key {
		err = fmt.Errorf("record: it is of %q, and stands under another key", rec.Key())
	}
	if err != nil {
		out.Err = err
		return out
	}
	out.Record = rec
	return out
}

func (a *Agents) open(ctx context.Context, key string) (natsjs.KeyValue, string, error) {
	if err := registry.ValidKey(key); err != nil {
		return nil, "", fmt.Errorf("key of %s: %w", a.bucket, err)
	}
	kv, err := a.handle(ctx)
	return kv, subject.Escape(key), err
}

func (a *Agents) handle(ctx context.Context) (natsjs.KeyValue, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kv == nil {
		ctx, cancel := bounded(ctx)
		defer cancel()
		kv, err := a.js.KeyValue(ctx, a.bucket)
		if err != nil {
			return nil, explain(a.js.Conn(), err, "open %s", a.bucket)
		}
		a.kv = kv
	}
	return a.kv, nil
}

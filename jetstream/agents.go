package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Agents stores the definitions of a mesh's agents in [BucketAgents]. It implements
// [registry.Registry].
type Agents struct {
	kvBucket
}

var _ registry.Registry = (*Agents)(nil)

// NewAgents returns the definitions of m's mesh. It does no I/O.
func NewAgents(js natsjs.JetStream, m subject.Map) *Agents {
	return &Agents{kvBucket{js: js, name: BucketAgents + m.Suffix()}}
}

// Put implements [registry.Registry].
func (a *Agents) Put(ctx context.Context, rec registry.Record, after uint64) (uint64, error) {
	data, err := rec.Encode()
	if err != nil {
		return 0, fmt.Errorf("register: %w", err)
	}
	key := rec.Key()
	at, err := a.key(key)
	if err != nil {
		return 0, err
	}
	var revision uint64
	if after == 0 {
		revision, err = a.create(ctx, at, data)
	} else {
		revision, err = a.update(ctx, at, data, after)
	}
	return revision, a.written(err, registry.ErrChanged, "register %q in %s", key, a.name)
}

// Remove implements [registry.Registry].
func (a *Agents) Remove(ctx context.Context, key string, revision uint64) error {
	at, err := a.key(key)
	if err != nil {
		return err
	}
	if revision == 0 {
		return fmt.Errorf("remove %q from %s: %w", key, a.name, registry.ErrChanged)
	}
	return a.written(a.remove(ctx, at, revision), registry.ErrChanged, "remove %q from %s", key, a.name)
}

// Get implements [registry.Registry].
func (a *Agents) Get(ctx context.Context, key string) (registry.Entry, error) {
	at, err := a.key(key)
	if err != nil {
		return registry.Entry{}, err
	}
	e, err := a.get(ctx, at)
	if err != nil {
		return registry.Entry{}, a.readError(err, "get %q from %s", key, a.name)
	}
	return entryOf(key, e), nil
}

// At implements [registry.Registry].
func (a *Agents) At(ctx context.Context, key string, revision uint64) (registry.Entry, error) {
	at, err := a.key(key)
	if err != nil {
		return registry.Entry{}, err
	}
	e, err := a.at(ctx, at, revision)
	if err != nil {
		return registry.Entry{}, a.readError(err, "get %q at revision %d from %s", key, revision, a.name)
	}
	return entryOf(key, e), nil
}

// History implements [registry.Registry].
func (a *Agents) History(ctx context.Context, key string) ([]registry.Entry, error) {
	at, err := a.key(key)
	if err != nil {
		return nil, err
	}
	all, err := a.history(ctx, at)
	if err != nil {
		return nil, a.readError(err, "history of %q in %s", key, a.name)
	}
	out := make([]registry.Entry, len(all))
	for i, e := range all {
		out[i] = entryOf(key, e)
	}
	return out, nil
}

// readError translates the error of a read.
func (a *Agents) readError(err error, format string, args ...any) error {
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		return fmt.Errorf(format+": %w: %w", append(args, registry.ErrNotFound, ErrNotFound)...)
	}
	return a.explain(err, format, args...)
}

// List implements [registry.Registry].
func (a *Agents) List(ctx context.Context) ([]registry.Entry, error) {
	var all []registry.Entry
	err := a.read(ctx, func(key string, e kvEntry) {
		if !e.gone && !e.stray {
			all = append(all, entryOf(key, e))
		}
	})
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDenied) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, natsjs.ErrJetStreamNotEnabled) || errors.Is(err, natsjs.ErrJetStreamNotEnabledForAccount) {
		err = absent{err}
	}
	return all, err
}

// absent is an error that is also [registry.ErrAbsent], with an unchanged text.
type absent struct{ error }

func (a absent) Unwrap() []error { return []error{registry.ErrAbsent, a.error} }

// Watch implements [registry.Registry]. It survives the same failures as [Records.WatchFrom].
func (a *Agents) Watch(ctx context.Context, changed func(registry.Entry), ready func()) error {
	return a.watch(ctx, func(key string, e kvEntry) { changed(entryOf(key, e)) }, ready)
}

// entryOf decodes one revision of a key.
func entryOf(key string, e kvEntry) registry.Entry {
	out := registry.Entry{Key: key, Revision: e.revision, Time: e.created, Removed: e.gone}
	if out.Removed {
		return out
	}
	rec, err := registry.Decode(e.value)
	if err == nil && rec.Key() != key {
		err = fmt.Errorf("record: it is of %q, but is stored under another key", rec.Key())
	}
	if err != nil {
		out.Err = err
		return out
	}
	out.Record = rec
	return out
}

func (a *Agents) key(key string) (string, error) {
	if err := registry.ValidKey(key); err != nil {
		return "", fmt.Errorf("key of %s: %w", a.name, err)
	}
	return subject.Escape(key), nil
}

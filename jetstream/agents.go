package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/mesh/subject"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Agents are the definitions of agents of a mesh, in [BucketAgents]: a
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
	kv, at, err := a.open(ctx, key)
	if err != nil {
		return 0, err
	}
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	var revision uint64
	if after == 0 {
		revision, err = kv.Create(ctx, at, data)
	} else {
		revision, err = kv.Update(ctx, at, data, after)
	}
	return revision, a.wrote(err, "register %q in %s", key, a.name)
}

// Remove implements [registry.Registry].
func (a *Agents) Remove(ctx context.Context, key string, revision uint64) error {
	kv, at, err := a.open(ctx, key)
	if err != nil {
		return err
	}
	if revision == 0 {
		return fmt.Errorf("remove %q from %s: %w", key, a.name, registry.ErrChanged)
	}
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	return a.wrote(kv.Delete(ctx, at, natsjs.LastRevision(revision)), "remove %q from %s", key, a.name)
}

// wrote says what a failed write means.
func (a *Agents) wrote(err error, format string, args ...any) error {
	if errors.Is(err, natsjs.ErrKeyExists) || isWrongSequence(err) {
		return fmt.Errorf(format+": %w", append(args, registry.ErrChanged)...)
	}
	return uncertain(a.explain(err, format, args...))
}

// Get implements [registry.Registry].
func (a *Agents) Get(ctx context.Context, key string) (registry.Entry, error) {
	kv, at, err := a.open(ctx, key)
	if err != nil {
		return registry.Entry{}, err
	}
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	e, err := kv.Get(ctx, at)
	if err != nil {
		return registry.Entry{}, a.missed(err, "get %q from %s", key, a.name)
	}
	return entryOf(key, e), nil
}

// At implements [registry.Registry].
func (a *Agents) At(ctx context.Context, key string, revision uint64) (registry.Entry, error) {
	kv, at, err := a.open(ctx, key)
	if err != nil {
		return registry.Entry{}, err
	}
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	e, err := kv.GetRevision(ctx, at, revision)
	if err != nil {
		return registry.Entry{}, a.missed(err, "get %q at revision %d from %s", key, revision, a.name)
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
		return nil, a.missed(err, "history of %q in %s", key, a.name)
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
	return a.explain(err, format, args...)
}

// List implements [registry.Registry].
func (a *Agents) List(ctx context.Context) ([]registry.Entry, error) {
	var all []registry.Entry
	err := a.list(ctx, func(key string, e natsjs.KeyValueEntry) { all = append(all, entryOf(key, e)) })
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Watch implements [registry.Registry]. It survives what [Records.Watch] does.
func (a *Agents) Watch(ctx context.Context, changed func(registry.Entry), ready func()) error {
	return a.watch(ctx, func(key string, e natsjs.KeyValueEntry) {
		if e == nil {
			changed(registry.Entry{Key: key, Removed: true})
			return
		}
		changed(entryOf(key, e))
	}, ready)
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
		return nil, "", fmt.Errorf("key of %s: %w", a.name, err)
	}
	kv, err := a.handle(ctx)
	return kv, subject.Escape(key), err
}

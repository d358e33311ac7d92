package registry

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// Mem is a registry in memory, for tests and for a mesh of one process. The zero
// value is empty.
type Mem struct {
	mu       sync.Mutex
	revision uint64
	kept     map[string][]Entry
	changed  chan struct{} // closed at the next change
}

var _ Registry = (*Mem)(nil)

// Put implements [Registry].
func (m *Mem) Put(_ context.Context, rec Record, after uint64) (uint64, error) {
	data, err := rec.Encode() // the bytes that a store would keep
	if err != nil {
		return 0, err
	}
	if rec, err = Decode(data); err != nil {
		return 0, err
	}
	return m.write(Entry{Key: rec.Key(), Record: rec}, after)
}

// Remove implements [Registry].
func (m *Mem) Remove(_ context.Context, key string, revision uint64) error {
	if err := ValidKey(key); err != nil {
		return err
	}
	if revision == 0 {
		return fmt.Errorf("remove %q: %w", clip.Text(key, 80), ErrChanged)
	}
	_, err := m.write(Entry{Key: key, Removed: true}, revision)
	return err
}

func (m *Mem) write(e Entry, after uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := m.at(e.Key); at != after {
		return 0, fmt.Errorf("%q: %w", clip.Text(e.Key, 80), ErrChanged)
	}
	m.revision++
	e.Revision, e.Time = m.revision, time.Now().UTC()
	if m.kept == nil {
		m.kept = map[string][]Entry{}
	}
	all := append(m.kept[e.Key], e)
	m.kept[e.Key] = all[max(0, len(all)-MaxHistory):]
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
	return e.Revision, nil
}

// at returns the current revision of a key; 0 if it was removed.
func (m *Mem) at(key string) uint64 {
	if all := m.kept[key]; len(all) > 0 && !all[len(all)-1].Removed {
		return all[len(all)-1].Revision
	}
	return 0
}

// Get implements [Registry].
func (m *Mem) Get(ctx context.Context, key string) (Entry, error) {
	all, err := m.History(ctx, key)
	if err == nil && all[len(all)-1].Removed {
		err = fmt.Errorf("%q: %w", clip.Text(key, 80), ErrNotFound)
	}
	if err != nil {
		return Entry{}, err
	}
	return all[len(all)-1], nil
}

// At implements [Registry].
func (m *Mem) At(ctx context.Context, key string, revision uint64) (Entry, error) {
	all, err := m.History(ctx, key)
	if err != nil {
		return Entry{}, err
	}
	i := slices.IndexFunc(all, func(e Entry) bool { return e.Revision == revision })
	if i < 0 || all[i].Removed {
		return Entry{}, fmt.Errorf("%q at revision %d: %w", clip.Text(key, 80), revision, ErrNotFound)
	}
	return all[i], nil
}

// History implements [Registry].
func (m *Mem) History(_ context.Context, key string) ([]Entry, error) {
	if err := ValidKey(key); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.kept[key]
	if len(all) == 0 {
		return nil, fmt.Errorf("%q: %w", clip.Text(key, 80), ErrNotFound)
	}
	return cloned(all), nil
}

// List implements [Registry].
func (m *Mem) List(context.Context) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cloned(m.since(0, false)), nil
}

// since returns the newest entries of keys that were written after a revision.
func (m *Mem) since(revision uint64, removed bool) []Entry {
	var out []Entry
	for _, all := range m.kept {
		if e := all[len(all)-1]; e.Revision > revision && (removed || !e.Removed) {
			out = append(out, e)
		}
	}
	sorted.By(out, byRevision)
	return out
}

func cloned(all []Entry) []Entry {
	out := slices.Clone(all)
	for i := range out {
		out[i].Record = out[i].Record.clone()
	}
	return out
}

// Watch implements [Registry].
func (m *Mem) Watch(ctx context.Context, changed func(Entry), ready func()) error {
	seen := uint64(0)
	for first := true; ; first = false {
		m.mu.Lock()
		news := cloned(m.since(seen, !first))
		seen = m.revision
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		next := m.changed
		m.mu.Unlock()
		for _, e := range news {
			if ctx.Err() != nil {
				return nil
			}
			changed(e)
		}
		if first && ready != nil {
			ready()
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}

// ValidKey returns an error if a record cannot have the key.
func ValidKey(key string) error {
	if isEntity(key) && subject.ValidateEntity(key) == nil {
		return nil
	}
	return validName(key)
}

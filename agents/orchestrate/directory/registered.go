package directory

import (
	"context"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope/pause"
)

// lookup calls f with the current registrations, which are watched or were just
// read. If they could not be read, the error says why, and f gets the previous
// ones.
func (d *Directory) lookup(ctx context.Context, f func(*registry.Index)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.registry != nil && !d.watched && time.Now().After(d.until) {
		d.mu.Unlock()
		d.list(ctx)
		d.mu.Lock()
	}
	f(&d.index)
	return d.missing
}

// list reads the registry, unless another goroutine has just done so.
func (d *Directory) list(ctx context.Context) {
	select {
	case d.listing <- struct{}{}:
		defer func() { <-d.listing }()
	case <-ctx.Done():
		return
	}
	d.mu.Lock()
	r, done := d.registry, d.watched || time.Now().Before(d.until)
	d.mu.Unlock()
	if done {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	all, err := r.List(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched {
		return
	}
	d.until, d.missing = time.Now().Add(listPause), err
	if err == nil {
		d.until = time.Now().Add(listFresh)
		d.index = registry.Index{}
		for i := range all {
			d.index.Set(&all[i])
		}
	}
}

// Run watches the registry, and asks the mesh for its workers when that is
// needed, until ctx ends. The directory also works without Run, but makes more
// requests.
func (d *Directory) Run(ctx context.Context) {
	select {
	case <-d.used:
	case <-ctx.Done():
		return
	}
	d.mu.Lock()
	r := d.registry
	d.running = true
	d.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait := watchPause; ctx.Err() == nil && r != nil; wait = min(2*wait, watchLongest) {
			d.watch(ctx, r)
			pause.For(ctx, wait) // retry: the bucket or the permission may exist then
		}
	}()
	for ctx.Err() == nil {
		select {
		case <-d.stale:
			d.survey(ctx, rosterFresh)
		case <-ctx.Done():
		}
	}
	<-done
	d.mu.Lock()
	d.running = false
	d.mu.Unlock()
}

// watch follows the registry until that fails or ctx ends.
func (d *Directory) watch(ctx context.Context, r registry.Registry) {
	fresh, reading := registry.Index{}, true
	err := r.Watch(ctx, func(e registry.Entry) {
		if reading {
			fresh.Set(&e)
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.index.Set(&e)
	}, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		reading = false
		d.index, d.watched, d.missing = fresh, true, nil
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched {
		d.watched, d.until = false, time.Time{}
	}
	if err != nil && !reading {
		d.log.Warn("registry of agents not watched any more", "err", err)
	}
}

// definition returns the document of a registration; nil if it cannot be read.
func (d *Directory) definition(ctx context.Context, card registry.Card) *aaif.Definition {
	d.mu.Lock()
	r := d.registry
	d.mu.Unlock()
	got := d.cached(ctx, "nats:"+card.Key, version{card.Revision, card.Time.UnixNano()}, func(ctx context.Context) (*aaif.Definition, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		e, err := r.Get(ctx, card.Key)
		if err == nil {
			err = e.Err
		}
		if err != nil {
			return nil, failureFresh, err
		}
		doc, err := e.Record.Parse()
		if err != nil {
			return nil, urlFresh, err
		}
		return doc.Definition(), 0, nil // valid until the revision changes
	})
	if got.err != nil {
		d.log.Warn("registered definition not read", "key", card.Key, "entity", card.Entity, "err", got.err)
	}
	return got.def
}

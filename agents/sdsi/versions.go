package sdsi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream"
)

// ErrTaken is wrapped by the error for a schema_id that already has another content. A changed
// template needs a new schema_id.
var ErrTaken = errors.New("this schema_id has another content already; a changed template needs a new one")

// errUnknown is the error for a schema_id that no worker has published.
var errUnknown = errors.New("no such schema_id")

// Versions stores the templates of agents for all their workers; [jetstream.Templates] implements
// it. A version is written once. Implementations must be safe for concurrent use.
type Versions interface {
	// Create stores a version, or fails with [jetstream.ErrExists].
	Create(ctx context.Context, entity, schemaID string, template []byte) error
	// Get returns a version, or [jetstream.ErrNotFound].
	Get(ctx context.Context, entity, schemaID string) ([]byte, error)
}

// Use sets the store with the templates of all workers of the mesh. Without it, or with nil, the
// desk knows only its own templates.
func (d *Desk) Use(v Versions) {
	if v == nil {
		d.versions.Store(nil)
		return
	}
	d.versions.Store(&v)
}

// Topic returns the topic of the events about an entity's templates: sdsi.agent.flights, on the
// subject bus.sdsi.agent.flights.
func Topic(entity string) string { return "sdsi." + entity }

// Publish stores the desk's templates for all workers, and returns those that are new to the mesh.
// An error that wraps [ErrTaken] is final; after any other error the caller may retry. Before
// [Desk.Use] it does nothing.
func (d *Desk) Publish(ctx context.Context) (added []*template.Template, err error) {
	store := d.versions.Load()
	if store == nil {
		return nil, nil
	}
	var bad []error
	for _, t := range d.own {
		isNew, err := d.publish(ctx, *store, t)
		if err != nil {
			bad = append(bad, fmt.Errorf("template %s: %w", t.SchemaID, err))
		} else if isNew {
			added = append(added, t)
		}
	}
	return added, errors.Join(bad...)
}

func (d *Desk) publish(ctx context.Context, store Versions, t *template.Template) (added bool, err error) {
	raw, err := json.Marshal(t)
	if err == nil {
		raw, err = envelope.Canonical(raw)
	}
	if err != nil {
		return false, err
	}
	err = store.Create(ctx, d.cfg.Entity, t.SchemaID, raw)
	if err == nil || !errors.Is(err, jetstream.ErrExists) {
		return err == nil, err
	}
	there, err := store.Get(ctx, d.cfg.Entity, t.SchemaID)
	if err == nil && !bytes.Equal(there, raw) {
		err = ErrTaken
	}
	return false, err
}

// version returns a version that this worker or another one has published.
func (d *Desk) version(ctx context.Context, schemaID string) (*version, error) {
	d.mu.Lock()
	v := d.known[schemaID]
	d.mu.Unlock()
	if v != nil {
		return v, nil
	}
	store := d.versions.Load()
	if store == nil || schemaID == "" {
		return nil, errUnknown
	}
	raw, err := (*store).Get(ctx, d.cfg.Entity, schemaID)
	if errors.Is(err, jetstream.ErrNotFound) {
		return nil, errUnknown
	}
	if err != nil {
		return nil, err
	}
	t, err := template.Parse(raw)
	if err == nil && t.SchemaID != schemaID {
		err = fmt.Errorf("it is stored as %s", schemaID)
	}
	if err == nil {
		v, err = d.ready(t)
	}
	if err == nil {
		if now := d.current[v.Scenario]; now != nil {
			v.held = d.ofOwnSchema(now.Template) // so this version was made from an earlier schema of the agent
		}
		err = d.register(v)
	}
	if err != nil {
		return nil, fmt.Errorf("stored template: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) < maxKnown+len(d.own) {
		d.known[schemaID] = v
	}
	return v, nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// refutations keep what was said against contexts in the mesh's bucket: all of
// one context in one record, as a JSON array.
type refutations struct{ records *jetstream.Records }

// Bounds of one record, and of the tries to change it where others do too.
const (
	maxRefutations    = 32
	refutationsRetry  = 8
	maxRefutationJSON = 8 << 10
)

// Add puts a record at the end of those of a context; beyond 32 the oldest go.
func (r refutations) Add(ctx context.Context, id string, record []byte) error {
	if len(record) > maxRefutationJSON {
		return fmt.Errorf("refutation of %d bytes, at most %d are kept", len(record), maxRefutationJSON)
	}
	for range refutationsRetry {
		have, err := r.records.Get(ctx, id)
		missing := errors.Is(err, jetstream.ErrNotFound)
		if err != nil && !missing {
			return err
		}
		var list []json.RawMessage
		if !missing && json.Unmarshal(have.Value, &list) != nil {
			list = nil // nobody can read it; it is replaced
		}
		list = append(list, record)
		raw, err := json.Marshal(list[max(0, len(list)-maxRefutations):])
		if err != nil {
			return fmt.Errorf("encode refutation: %w", err)
		}
		if missing {
			_, err = r.records.Create(ctx, id, raw)
		} else {
			_, err = r.records.Update(ctx, id, raw, have.Revision)
		}
		if !errors.Is(err, jetstream.ErrExists) && !errors.Is(err, jetstream.ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("refute %s: %w, again and again", id, jetstream.ErrChanged)
}

// List returns the records of a context.
func (r refutations) List(ctx context.Context, id string) ([][]byte, error) {
	have, err := r.records.Get(ctx, id)
	if errors.Is(err, jetstream.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(have.Value, &list); err != nil {
		return nil, fmt.Errorf("refutations of %s: %w", id, err)
	}
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = raw
	}
	return out, nil
}

// useStores gives a node the mesh's journal, where it is wanted and there: with
// auto, nothing is missed where it is not.
func (a *app) useStores(ctx context.Context, js natsjs.JetStream, m subject.Map, want string, cfg *mesh.Config) error {
	if want == "memory" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.conn.wait())
	defer cancel()
	plan, err := jetstream.Plan(ctx, js, jetstream.Options{Map: m, Only: []string{jetstream.StreamJournal, jetstream.BucketRefuted}})
	there := map[string]bool{}
	for _, c := range plan {
		there[c.Name] = c.Action != jetstream.ActionCreate && c.Action != jetstream.ActionConflict
	}
	for _, spec := range jetstream.Topology() {
		name := spec.FullName(m)
		switch {
		case spec.Name == jetstream.StreamJournal && there[name]:
			cfg.Journal = jetstream.NewJournal(js, m)
		case spec.Name == jetstream.BucketRefuted && there[name]:
			cfg.Refutations = refutations{jetstream.NewRefuted(js, m)}
		}
	}
	switch {
	case want == "auto" && err != nil:
		a.log.Info("no journal in JetStream; envelopes are remembered in memory", "err", err)
	case want == "jetstream" && err != nil:
		return fmt.Errorf("--journal jetstream: %w", err)
	case want == "jetstream" && (cfg.Journal == nil || cfg.Refutations == nil):
		return hinted(fmt.Errorf("--journal jetstream: the mesh's streams are not there"), "\"aeemesh doctor --apply\" makes them.")
	}
	return nil
}

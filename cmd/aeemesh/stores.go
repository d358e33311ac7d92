package main

import (
	"context"
	"fmt"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// useStores gives a node the mesh's journal, where it is wanted and there: with
// auto, nothing is missed where it is not.
func (a *app) useStores(ctx context.Context, js natsjs.JetStream, m subject.Map, want string, cfg *mesh.Config) error {
	if want == "memory" {
		return nil
	}
	wait := a.conn.wait()
	if want == "auto" {
		wait = min(wait, 2*time.Second) // where it may not ask, NATS answers with silence
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
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
			cfg.Refutations = jetstream.NewRefutations(js, m)
		}
	}
	switch {
	case want == "auto" && err != nil:
		a.log.Info("no journal in JetStream; envelopes are remembered in memory", "err", err)
	case want == "jetstream" && err != nil:
		return fmt.Errorf("--journal jetstream: %w", err)
	case want == "jetstream" && (cfg.Journal == nil || cfg.Refutations == nil):
		return hinted(fmt.Errorf("--journal jetstream: the mesh's streams are not there"), "\"aeemesh apply\" makes them.")
	}
	return nil
}

// haveBucket reports an error unless the mesh's bucket is there.
func (a *app) haveBucket(ctx context.Context, js natsjs.JetStream, m subject.Map, name string) error {
	ctx, cancel := context.WithTimeout(ctx, a.conn.wait())
	defer cancel()
	plan, err := jetstream.Plan(ctx, js, jetstream.Options{Map: m, Only: []string{name}})
	if err != nil {
		return err
	}
	for _, c := range plan {
		if c.Action == jetstream.ActionCreate || c.Action == jetstream.ActionConflict {
			return hinted(fmt.Errorf("the mesh's bucket %s is not there", c.Name), "\"aeemesh apply\" makes it.")
		}
	}
	return nil
}

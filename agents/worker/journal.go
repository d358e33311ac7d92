package worker

import (
	"context"
	"errors"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// useJournal adds the mesh's journal to the configuration of the worker's node,
// if its streams exist.
func (w *Worker) useJournal(ctx context.Context, js natsjs.JetStream, m subject.Map, cfg *mesh.Config) error {
	use := w.cfg.Journal
	if use == Off {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, use.patience(w.cfg.Wait))
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
	case use == Auto && err != nil:
		w.log.Info("no journal in JetStream; envelopes are remembered in memory", "err", err)
	case use == On && err != nil:
		return &ConfigError{"Journal", err}
	case use == On && (cfg.Journal == nil || cfg.Refutations == nil):
		return &ConfigError{"Journal", ErrNoStreams}
	}
	return nil
}

// ErrNoStreams is the error of [Config].Journal On in a mesh without the
// journal's streams.
var ErrNoStreams = errors.New("the mesh's streams do not exist")

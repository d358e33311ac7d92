package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
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

// A WindowError says that the mesh keeps the ids of envelopes for a shorter time
// than this worker has to remember them: an older envelope could come again.
type WindowError struct {
	Want, Kept time.Duration
}

func (e *WindowError) Error() string {
	return fmt.Sprintf("ids have to be remembered for %v (ReplayWindow, or twice the Skew), and the mesh's bucket keeps them for %v", e.Want, e.Kept)
}

// useSeen adds the mesh's replay window to the configuration of the worker's
// node, if its bucket exists.
func (w *Worker) useSeen(ctx context.Context, js natsjs.JetStream, m subject.Map, cfg *mesh.Config) error {
	use := w.cfg.Replay
	if use == Off || cfg.ReplayWindow <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, use.patience(w.cfg.Wait))
	defer cancel()
	ids := seen.New(js, m, cfg.ReplayWindow)
	bound, err := ids.Bound(ctx)
	switch {
	case err != nil && use == Auto:
		w.log.Info("ids are remembered by this process alone", "err", err)
		return nil
	case err != nil:
		return &ConfigError{"Replay", err}
	case bound > 0 && cfg.ReplayWindow > bound:
		return &ConfigError{"Replay", &WindowError{cfg.ReplayWindow, bound}}
	}
	cfg.Seen, cfg.SeenUnsigned = ids, use == On
	return nil
}

// lateSeen is the mesh's replay window for a worker that has started before
// JetStream was available: until then it treats every id as new, and only the
// worker's own memory detects replays.
type lateSeen struct {
	window atomic.Pointer[seen.Window]
}

func (s *lateSeen) Claim(ctx context.Context, entity, id, by string) (holder string, err error) {
	if window := s.window.Load(); window != nil {
		return window.Claim(ctx, entity, id, by)
	}
	return by, nil
}

// attachSeen starts to use the mesh's replay window if the mesh keeps ids for
// long enough.
func (w *Worker) attachSeen(ctx context.Context, late *lateSeen, window *seen.Window, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Wait)
	defer cancel()
	bound, err := window.Bound(ctx)
	if err == nil && bound > 0 && length > bound {
		err = fmt.Errorf("the mesh keeps them for %v, and %v are asked for", bound, length)
	}
	if err != nil {
		w.log.Info("ids are remembered by this process alone", "err", err)
		return
	}
	late.window.Store(window)
}

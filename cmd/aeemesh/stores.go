package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// useStores adds the mesh's journal to a node, if flags want it and it exists;
// with auto a missing journal is not reported.
func (a *app) useStores(ctx context.Context, js natsjs.JetStream, m subject.Map, want string, cfg *mesh.Config) error {
	if want == "memory" {
		return nil
	}
	wait := a.Conn.Wait()
	if want == "auto" {
		wait = min(wait, 2*time.Second) // without permission to ask, there is no answer at all
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
		a.Log.Info("no journal in JetStream; envelopes are remembered in memory", "err", err)
	case want == "jetstream" && err != nil:
		return fmt.Errorf("--journal jetstream: %w", err)
	case want == "jetstream" && (cfg.Journal == nil || cfg.Refutations == nil):
		return outcome.Hinted(fmt.Errorf("--journal jetstream: the mesh's streams are not there"), "\"aeemesh apply\" makes them.")
	}
	return nil
}

// useSeen adds the mesh's replay window to a node, if --replay-scope wants it
// and, for auto, if it exists.
func (a *app) useSeen(ctx context.Context, js natsjs.JetStream, m subject.Map, cfg *mesh.Config) error {
	scope := a.Sign.ReplayScope
	if scope == "process" || cfg.ReplayWindow <= 0 {
		return nil
	}
	wait := a.Conn.Wait()
	if scope == "auto" {
		wait = min(wait, 2*time.Second) // without permission to ask, there is no answer at all
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	seen := jetstream.NewSeen(js, m, cfg.ReplayWindow)
	bound, err := seen.Bound(ctx)
	switch {
	case err != nil && scope == "auto":
		a.Log.Info("ids are remembered by this process alone", "err", err)
		return nil
	case errors.Is(err, jetstream.ErrNotFound):
		return outcome.Hinted(fmt.Errorf("--replay-scope mesh: %w", err), "\"aeemesh apply\" makes the bucket.")
	case err != nil:
		return outcome.Hinted(fmt.Errorf("--replay-scope mesh: %w", err), "\"aeemesh auth perms ENTITY --replay-scope mesh\" prints the permissions that it needs.")
	case bound > 0 && cfg.ReplayWindow > bound:
		return outcome.Hinted(fmt.Errorf("ids have to be remembered for %v (--replay-window, or twice the --skew), and the mesh's bucket keeps them for %v: older envelopes could come again", cfg.ReplayWindow, bound),
			"\"aeemesh apply --limit %s=max_age:%v\" keeps them for longer; --replay-scope process does without the bucket.", jetstream.BucketSeen, cfg.ReplayWindow)
	}
	cfg.Seen, cfg.SeenUnsigned = seen, scope == "mesh"
	return nil
}

// lateSeen is the mesh's replay window for a worker that has started before
// JetStream was available: until then it treats every id as new, and only the
// worker's own memory detects replays.
type lateSeen struct {
	window atomic.Pointer[jetstream.Seen]
}

func (s *lateSeen) Claim(ctx context.Context, entity, id, by string) (holder string, err error) {
	if window := s.window.Load(); window != nil {
		return window.Claim(ctx, entity, id, by)
	}
	return by, nil
}

// look starts to use the window if the mesh keeps ids for long enough.
func (s *lateSeen) look(ctx context.Context, a *session.App, js natsjs.JetStream, m subject.Map, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, a.Conn.Wait())
	defer cancel()
	window := jetstream.NewSeen(js, m, length)
	bound, err := window.Bound(ctx)
	if err == nil && bound > 0 && length > bound {
		err = fmt.Errorf("the mesh keeps them for %v, and %v are asked for", bound, length)
	}
	if err != nil {
		a.Log.Info("ids are remembered by this process alone", "err", err)
		return
	}
	s.window.Store(window)
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/orchestrate/directory"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// connectTeams connects the directory to the mesh, registers documents if
// requested, and refuses documents whose subagents can never be found. The
// returned function stops what it has started.
func (w *Worker) connectTeams(ctx context.Context, node *mesh.Node, js natsjs.JetStream) (end func(), err error) {
	named := false
	for _, h := range w.agents {
		named = named || h.view != nil
	}
	if !w.cfg.Register && !named {
		return func() {}, nil
	}
	reg := jetstream.NewAgents(js, node.Subjects())
	w.directory.Use(node, reg)
	if w.cfg.Register {
		if err := w.register(ctx, reg); err != nil {
			return nil, &ConfigError{"Register", err}
		}
	}
	looking, cancel := context.WithTimeout(ctx, directory.LookTime)
	defer cancel()
	var bad []error
	for _, h := range w.agents {
		if h.view == nil {
			continue
		}
		for _, p := range h.doc.Locate(h.view.Never(looking, h.doc.Definition())) {
			bad = append(bad, fmt.Errorf("%s: %s", h.name(), p))
		}
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	told := w.reportMissing(running)
	var wait sync.WaitGroup
	wait.Go(func() { w.directory.Run(running) })
	return func() { stop(); wait.Wait(); told() }, nil
}

// Workers that start together register the same documents: all but one find that a registration has
// changed since they read it. They read the registry again, registerTries times for each document.
const (
	registerTries = 5
	registerPause = 50 * time.Millisecond // grows by itself with each
)

// register registers the documents.
func (w *Worker) register(ctx context.Context, reg registry.Registry) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Wait)
	defer cancel()
	all, err := reg.List(ctx)
	if err != nil {
		return err
	}
	r := registry.NewRegistrar(reg, all)
	for _, h := range w.agents {
		if h.doc == nil {
			continue
		}
		err := w.registerOne(ctx, r, h)
		for try := 1; errors.Is(err, registry.ErrChanged) && try < registerTries && pause.For(ctx, time.Duration(try)*registerPause); try++ {
			if all, err = reg.List(ctx); err == nil {
				r = registry.NewRegistrar(reg, all)
				err = w.registerOne(ctx, r, h)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.name(), err)
		}
	}
	return nil
}

// registerOne registers an agent's document.
func (w *Worker) registerOne(ctx context.Context, r *registry.Registrar, h *hosted) error {
	rec, err := r.Record(h.doc, h.Entity, h.Entity)
	if err == nil {
		err = r.Free(&rec)
	}
	var done registry.Registered
	if err == nil {
		done, err = r.Put(ctx, rec)
	}
	if err == nil && done.Outcome != "unchanged" {
		w.log.Info("registered", "entity", rec.Entity, "key", rec.Key(), "version", rec.Version, "revision", done.Revision, "outcome", done.Outcome)
	}
	return err
}

// reportMissing reports once which subagents no running agent answers for, after
// all agents of this worker are served, because they may name one another. The
// returned function waits until that is done or ctx has ended.
func (w *Worker) reportMissing(ctx context.Context) (wait func()) {
	var told sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(len(w.agents)))
	all := make(chan struct{})
	for _, h := range w.agents {
		before, once := h.Ready, sync.OnceFunc(func() {
			if left.Add(-1) == 0 {
				close(all)
			}
		})
		h.Ready = func() {
			before()
			once()
		}
	}
	told.Go(func() {
		select {
		case <-all:
		case <-ctx.Done():
			return
		}
		looking, cancel := context.WithTimeout(ctx, directory.LookTime)
		defer cancel()
		for _, h := range w.agents {
			if h.view == nil {
				continue
			}
			of := len(directory.References(h.doc.Definition()))
			if of == 0 {
				continue
			}
			missing := h.doc.Locate(h.view.Check(looking, h.doc.Definition()))
			if ctx.Err() != nil {
				return
			}
			w.cfg.Hooks.References(h.Entity, of-len(missing), of, missing)
		}
	})
	return told.Wait
}

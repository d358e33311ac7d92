package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate/directory"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
)

// hostedDocument is the document of an agent of this worker.
type hostedDocument struct {
	name string
	doc  *aaif.Document
	view *directory.View // nil: it names no subagents
}

// teams holds the directory of a worker, with the documents that it hosts.
type teams struct {
	dir    *directory.Directory
	hosted map[string]hostedDocument // by entity
}

func newTeams(cfg directory.Config) teams {
	return teams{dir: directory.New(cfg), hosted: map[string]hostedDocument{}}
}

// add adds an agent; named says whether its document names subagents.
func (t *teams) add(entity, name string, doc *aaif.Document, view *directory.View, named bool) {
	if !named || doc.Definition().Agent.Orchestration == nil {
		view = nil
	}
	t.hosted[entity] = hostedDocument{name, doc, view}
}

// needed reports whether a hosted agent names subagents.
func (t *teams) needed() bool {
	for _, h := range t.hosted {
		if h.view != nil {
			return true
		}
	}
	return false
}

// lookTime bounds the check of subagents when a worker starts.
const lookTime = 10 * time.Second

// view returns the directory as the agent of one document sees it.
func (t *teams) view(name, as string, doc *aaif.Document) *directory.View {
	asker := directory.Asker{Entity: as}
	if as == "" {
		asker.Entity, _ = aaif.EntityName(doc.Definition().Agent.Name)
	}
	if folder, err := filepath.Abs(filepath.Dir(name)); err == nil && name != "-" {
		asker.Folder = folder
	}
	return t.dir.For(asker)
}

// connectTeams connects the directory to the mesh, registers documents if
// requested, and refuses documents whose subagents can never be found. The
// returned function stops what it has started.
func connectTeams(a *session.App, ctx context.Context, s *session.Session, t *teams, register bool, served []*agents.Agent) (end func(), err error) {
	if !register && !t.needed() {
		return func() {}, nil
	}
	reg, err := openDefinitions(s)
	if err != nil {
		return nil, err
	}
	t.dir.Use(s.Node, reg)
	if register {
		if err := registerHosted(a, ctx, reg, t, served); err != nil {
			return nil, fmt.Errorf("--register: %w", err)
		}
	}
	looking, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var bad []error
	for _, agent := range served {
		h := t.hosted[agent.Entity]
		if h.view == nil {
			continue
		}
		for _, p := range h.doc.Locate(h.view.Never(looking, h.doc.Definition())) {
			bad = append(bad, fmt.Errorf("%s: %s", h.name, p))
		}
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	told := warnOfMissing(a, running, t, served)
	var wait sync.WaitGroup
	wait.Go(func() { t.dir.Run(running) })
	return func() { stop(); wait.Wait(); told() }, nil
}

// registerHosted registers the documents of a worker.
func registerHosted(a *session.App, ctx context.Context, reg registry.Registry, t *teams, served []*agents.Agent) error {
	ctx, cancel := context.WithTimeout(ctx, a.Conn.Wait())
	defer cancel()
	all, err := reg.List(ctx)
	if err != nil {
		return err
	}
	r := &registrar{reg: reg, index: indexOf(all), entries: map[string]registry.Entry{}}
	for _, e := range all {
		r.entries[e.Key] = e
	}
	for _, agent := range served {
		h := t.hosted[agent.Entity]
		if h.doc == nil {
			continue
		}
		rec, err := r.record(h.doc, agent.Entity, agent.Entity)
		if err == nil {
			err = r.free(&rec)
		}
		var done registration
		if err == nil {
			done, err = r.put(ctx, rec)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		if done.Outcome != "unchanged" {
			a.Log.Info("registered", "entity", done.Entity, "key", done.Key, "version", done.Version, "revision", done.Revision, "outcome", done.Outcome)
		}
	}
	return nil
}

// warnOfMissing warns once of subagents that no agent answers for, after all
// agents of this worker are served, because they may name one another. The
// returned function waits until the warning was printed or ctx has ended.
func warnOfMissing(a *session.App, ctx context.Context, t *teams, served []*agents.Agent) (wait func()) {
	var told sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(len(served)))
	all := make(chan struct{})
	for _, agent := range served {
		before, once := agent.Ready, sync.OnceFunc(func() {
			if left.Add(-1) == 0 {
				close(all)
			}
		})
		agent.Ready = func() {
			if before != nil {
				before()
			}
			once()
		}
	}
	told.Go(func() {
		select {
		case <-all:
		case <-ctx.Done():
			return
		}
		looking, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		for _, agent := range served {
			h := t.hosted[agent.Entity]
			if h.view == nil {
				continue
			}
			missing := h.doc.Locate(h.view.Check(looking, h.doc.Definition()))
			if ctx.Err() != nil {
				return
			}
			all := len(directory.References(h.doc.Definition()))
			if answered := all - len(missing); len(missing) == 0 {
				a.Term.Note("%s: %d of %d references are answered", agent.Entity, all, all)
			} else if answered > 0 {
				a.Term.Warn("%s: %d of %d references are answered", agent.Entity, answered, all)
			}
			a.Term.Notices(agent.Entity, missing)
		}
	})
	return told.Wait
}

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// publishInterval is how often a worker tries to publish its templates that could not.
const publishInterval = 30 * time.Second

func untilPublished(ctx context.Context) bool { return pause.For(ctx, publishInterval) }

// addDesk gives an agent the schema templates of the operator's folder, and one that is
// made of its document's io.input_schema.
func (w *Worker) addDesk(h *hosted) error {
	given, err := w.templatesOf(h.Entity)
	if err != nil {
		return &ConfigError{"Templates", err}
	}
	h.templates = len(given)
	all := given
	if t := w.ownTemplate(h); t != nil {
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil
	}
	desk, err := sdsi.NewDesk(sdsi.DeskConfig{Entity: h.Entity, Templates: all, Unknown: w.cfg.UnknownKeys, Logger: w.log, Meter: w.cfg.Node.MeterProvider})
	if err == nil && w.cfg.Learn {
		if err := w.addLearner(h, desk); err != nil {
			return &ConfigError{"Learn", fmt.Errorf("%s: %w", h.name(), err)}
		}
	}
	if err == nil {
		err = desk.Attach(&h.Agent.Agent)
	}
	if err != nil {
		return &ConfigError{"Templates", err}
	}
	h.desk = desk
	return nil
}

// templatesOf reads the templates of an agent: of the folder below [Config].Templates that
// has the entity's name, or of Templates itself, if the worker has one agent.
func (w *Worker) templatesOf(entity string) ([]*template.Template, error) {
	if w.cfg.Templates == "" {
		return nil, nil
	}
	own := filepath.Join(w.cfg.Templates, entity)
	switch info, err := os.Stat(own); {
	case err == nil && info.IsDir():
		return template.Load(own)
	case len(w.cfg.Agents) == 1:
		return template.Load(w.cfg.Templates)
	}
	return nil, nil
}

// ownTemplate makes a template of a document's io.input_schema; nil if there is none, or if
// it has no form as a template.
func (w *Worker) ownTemplate(h *hosted) *template.Template {
	if h.doc == nil {
		return nil
	}
	def := h.doc.Definition()
	if def.Agent.IO == nil || len(def.Agent.IO.InputSchema) == 0 {
		return nil
	}
	_, scenario, _ := strings.Cut(h.Entity, ".")
	t, err := template.FromJSONSchema(scenario, scenario, def.Agent.IO.InputSchema, def.Agent.IO.OutputSchema)
	if err == nil {
		w.describe(h, t, def.Agent.Description)
		// The id contains the content's hash, so a changed schema has another id.
		if hash, ok := strings.CutPrefix(t.Hash(), "sha256:"); ok {
			t.SchemaID = scenario + "_" + hash[:12]
			err = t.Validate()
		} else {
			err = errors.New("it has no canonical form")
		}
	}
	if err != nil {
		w.log.Warn("the document's io.input_schema makes no schema template", "entity", h.Entity, "why", err)
		return nil
	}
	return t
}

// describe sets a template's description from a document, for which AAIF has no rules: it is cut
// to the length that a template allows, and left out if it has invisible characters.
func (w *Worker) describe(h *hosted, t *template.Template, text string) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if chars := []rune(text); len(chars) > template.MaxDescription {
		text = string(chars[:template.MaxDescription-1]) + "…"
	}
	t.Description = text
	if err := t.Validate(); err != nil {
		w.log.Warn("the schema template has no description: the document's is not one of a template", "entity", h.Entity, "why", err)
		t.Description = ""
	}
}

// learnTemplates connects the agents' desks to the mesh's templates, and publishes their own: those of
// the operator before it returns, those that documents make while the agents work. The returned
// function stops what it has started. fail ends the worker if a version turns out to be taken later.
func (w *Worker) learnTemplates(ctx context.Context, fail context.CancelCauseFunc, node *mesh.Node, js natsjs.JetStream) (end func(), err error) {
	p := &publisher{w, node, jetstream.NewTemplates(js, node.Subjects()), fail, make(chan struct{}, publishAtOnce)}
	// It goes on while the worker drains: tasks that have begun tell something, too.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wait, given sync.WaitGroup
	end = func() { stop(); wait.Wait() }
	var hosts []*hosted
	for _, h := range w.agents {
		if h.desk == nil || h.templates == 0 && h.learner == nil && w.cfg.Fenced {
			continue // its user need not have the permissions
		}
		h.desk.Use(p.store)
		w.learn(running, &wait, node, js, h)
		hosts = append(hosts, h)
	}
	errs := make([]error, len(hosts)) // of the operator's templates
	for i, h := range hosts {
		if h.templates > 0 {
			given.Go(func() { errs[i] = p.publish(ctx, h) })
		}
	}
	given.Wait()
	for i, h := range hosts {
		switch err := errs[i]; {
		case errors.Is(err, sdsi.ErrTaken):
			end()
			return nil, &ConfigError{"Templates", err}
		case err != nil && ctx.Err() != nil:
			end()
			return nil, err
		case err != nil:
			w.log.Warn("schema templates are not published yet", "entity", h.Entity, "err", err)
			wait.Go(func() {
				if w.again(running) {
					p.keepOn(running, h)
				}
			})
		case h.templates == 0:
			wait.Go(func() { p.keepOn(running, h) })
		}
	}
	return end, nil
}

// publishAtOnce is how many agents of a worker publish their templates at the same time.
const publishAtOnce = 16

// publisher publishes the templates of a worker's agents.
type publisher struct {
	w      *Worker
	node   *mesh.Node
	store  *jetstream.Templates
	fail   context.CancelCauseFunc // ends the worker
	places chan struct{}           // full when publishAtOnce agents publish
}

// keepOn publishes an agent's templates, with pauses, until it has succeeded or ctx ends.
func (p *publisher) keepOn(ctx context.Context, h *hosted) {
	for first := true; ; first = false {
		err := p.publish(ctx, h)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case errors.Is(err, sdsi.ErrTaken):
			p.fail(&ConfigError{"Templates", err})
			return
		case h.templates == 0: // that of the document alone, which all its workers have
			h.desk.Use(p.meanwhile(ctx))
			if first {
				p.w.log.Debug("schema template is not published yet", "entity", h.Entity, "err", err)
			}
		}
		if !p.w.again(ctx) {
			return
		}
	}
}

// meanwhile returns the versions that an agent uses until its template is being published again: none
// without durable tasks or without the bucket, because then the mesh has no templates, else those that
// cannot be read.
func (p *publisher) meanwhile(ctx context.Context) sdsi.Versions {
	if p.node == nil || p.node.Durable() == nil || !p.node.Durable().Available() || p.store.Missing(ctx) {
		return nil
	}
	return unread{}
}

// unread are versions that cannot be read for now.
type unread struct{}

func (unread) Create(context.Context, string, string, []byte) error { return jetstream.ErrUnavailable }
func (unread) Get(context.Context, string, string) ([]byte, error) {
	return nil, jetstream.ErrUnavailable
}

// publish publishes an agent's templates once. Its desk uses those of the mesh as soon as it has a place.
func (p *publisher) publish(ctx context.Context, h *hosted) error {
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return ctx.Err()
	}
	h.desk.Use(p.store)
	ctx, cancel := context.WithTimeout(ctx, p.w.cfg.Wait)
	defer cancel()
	added, err := h.desk.Publish(ctx)
	for _, t := range added {
		payload, failed := json.Marshal(t.Listed())
		if failed == nil {
			failed = p.node.BroadcastFrom(h.Entity, h.Signer, sdsi.Topic(h.Entity), intents.SchemaPublished, payload)
		}
		if failed != nil {
			p.w.log.Warn("event not sent", "entity", h.Entity, "intent", intents.SchemaPublished, "err", failed)
		}
		p.w.log.Info("schema template published", "entity", h.Entity, "scenario", t.Scenario, "schema_id", t.SchemaID)
	}
	if errors.Is(err, jetstream.ErrNotFound) || errors.Is(err, jetstream.ErrUnavailable) {
		err = fmt.Errorf("the mesh has no bucket for them (\"aeemesh apply\" makes it), or JetStream is away: %w", err)
	}
	return err
}

// shape lets an agent that publishes templates of the operator's folder give its team's
// members what they publish templates for. An agent that has only the one of its document
// goes on as before there were any.
func (w *Worker) shape(h *hosted) func(ctx context.Context, entity string, made json.RawMessage) (string, json.RawMessage, bool) {
	var client atomic.Pointer[sdsi.Client]
	return func(ctx context.Context, entity string, made json.RawMessage) (string, json.RawMessage, bool) {
		node := w.node.Load()
		if h.templates == 0 || node == nil {
			return "", nil, false
		}
		if client.Load() == nil {
			client.CompareAndSwap(nil, sdsi.NewClient(node))
		}
		return client.Load().Shape(ctx, entity, made)
	}
}

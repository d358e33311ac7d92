package worker

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate/directory"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/mesh"
)

// hosted is an agent of this worker.
type hosted struct {
	*agents.Agent
	file string
	doc  *aaif.Document  // nil: it has none
	view *directory.View // nil: its document names no subagents

	desk      *sdsi.Desk // nil: it has no schema templates
	templates int        // how many of them are the operator's

	learner *learn.Learner // nil: it learns nothing
	tell    func(scenario, cohort string, e evolve.Event) error
}

// name stands for the agent in messages.
func (h *hosted) name() string {
	if h.file == "" {
		return h.Entity
	}
	return h.file
}

// makeAgents makes the agents of the configuration.
func (w *Worker) makeAgents() error {
	from := map[string]string{} // entity to name
	for _, given := range w.cfg.Agents {
		h, err := w.makeAgent(given)
		if err != nil {
			return err
		}
		switch other, taken := from[h.Entity]; {
		case taken && other == h.name():
			return faulty("Agents", "%s is there twice", other)
		case taken:
			return faulty("Agents", "%s and %s are both %s", other, h.name(), h.Entity)
		}
		from[h.Entity] = h.name()
		if err := w.addDesk(h); err != nil {
			return err
		}
		w.addHealth(h.Agent)
		w.agents = append(w.agents, h)
	}
	if w.cfg.Templates != "" && !slices.ContainsFunc(w.agents, func(h *hosted) bool { return h.templates > 0 }) {
		w.log.Warn("the folder of templates has none for this worker's agents", "templates", w.cfg.Templates)
	}
	if w.cfg.Learn && !slices.ContainsFunc(w.agents, func(h *hosted) bool { return h.desk != nil }) {
		return faulty("Learn", "no agent has a schema template to learn for: give it templates, or a document with io.input_schema")
	}
	for _, p := range w.cfg.Options.AcceptUnhonoured {
		if !slices.ContainsFunc(w.agents, func(h *hosted) bool { return slices.Contains(h.Accepted, p) }) {
			w.cfg.Hooks.Unneeded(p)
		}
	}
	return nil
}

func (w *Worker) makeAgent(given Agent) (*hosted, error) {
	h := &hosted{file: given.File, doc: given.Document}
	opts := w.cfg.Options
	opts.As, opts.Handler, opts.Program = given.As, given.Handler, given.Program
	if h.doc == nil && h.file == "" {
		var err error
		h.Agent, err = undocumented(opts)
		return h, err
	}
	if h.doc == nil {
		var err error
		if h.doc, err = w.read(h.file); err != nil {
			return nil, err
		}
	}
	if h.doc.Definition() == nil {
		return nil, faulty("Agents", "%s: an agent definition is needed, not a document of kind %q", cmp.Or(h.file, given.As, "a document"), h.doc.Kind())
	}
	view := w.directory.For(directory.AskerOf(h.doc.Definition(), given.As, h.file))
	if given.Handler == nil && given.Program == nil && h.doc.Definition().Agent.Orchestration != nil {
		h.view = view
	}
	opts.Directory, opts.Shape = view, w.shape(h)
	var err error
	if h.Agent, err = agents.New(h.doc, opts); err != nil && h.file != "" {
		err = fmt.Errorf("%s: %w", h.file, err)
	}
	return h, err
}

// read reads a document. If it cannot be parsed, and may be one whose refusal
// MUST be audit-logged, the log says so.
func (w *Worker) read(file string) (*aaif.Document, error) {
	data, err := w.cfg.ReadFile(file, aaif.DefaultMaxBytes+1)
	if err != nil {
		return nil, err
	}
	doc, err := aaif.Parse(data, aaif.Options{Name: file, Kind: aaif.KindAgent})
	if err == nil {
		return doc, nil
	}
	if bytes.Contains(data, []byte(aaif.SafetyRegulated)) {
		w.log.Error("document refused", "audit", true, "file", file, "err", err)
	}
	return nil, &DocumentError{file, err}
}

// A DocumentError is a document that is no valid agent definition.
type DocumentError struct {
	File string
	Err  error // usually an [*aaif.Error]; it names the file
}

func (e *DocumentError) Error() string { return e.Err.Error() }
func (e *DocumentError) Unwrap() error { return e.Err }

func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// undocumented makes an agent without a document. Its intents are those of
// Options.IntentsDir, and plain text is accepted even if unknown intents are
// refused. Its durable tasks are retried as often as those of an agent whose document does not say
// how often.
func undocumented(opts agents.Options) (*agents.Agent, error) {
	if opts.As == "" || (opts.Handler == nil) == (opts.Program == nil) {
		return nil, faulty("Agents", "an agent without a document has As, and a Handler or a Program")
	}
	if err := subject.ValidateServed(opts.As); err != nil {
		return nil, &ConfigError{"Agents", err}
	}
	known := intents.NewRegistry()
	if opts.IntentsDir != "" {
		if _, err := known.LoadDir(opts.IntentsDir); err != nil {
			return nil, &ConfigError{"IntentsDir", err}
		}
	}
	if opts.RefuseUnknown && !known.Has(intents.AgentAsk) {
		if err := known.Register(intents.FromIO(intents.AgentAsk, nil, nil)); err != nil {
			return nil, err
		}
	}
	a := &agents.Agent{Agent: mesh.Agent{Entity: opts.As, Concurrency: max(opts.Concurrency, mesh.DefaultConcurrency),
		Queue: opts.Queue, Steers: opts.Steers && opts.Handler != nil, Retry: mesh.RetryPolicy{Max: agents.DefaultMaxRetries}, Intents: known, RefuseUnknown: opts.RefuseUnknown,
		Seal: opts.StateKeys, Metadata: maps.Clone(opts.Metadata)}}
	work := opts.Handler
	if p := opts.Program; p != nil {
		a.Program, work, a.Health = p, p, p.Health
	}
	a.Handler = agents.Sure(work, opts.Redactor)
	return a, nil
}

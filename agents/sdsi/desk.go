package sdsi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/mesh"
)

// DeskConfig says what a [Desk] serves.
type DeskConfig struct {
	// Entity is the agent's entity id. Required.
	Entity string
	// Templates are the versions that the agent serves. Of each scenario the last one, in
	// natural order of schema_id (v9 before v10), is the current one. At least one.
	Templates []*template.Template
	// Unknown says what happens to keys that a template does not have. Default: they go
	// into "other".
	Unknown template.UnknownPolicy
	// Logger gets log messages. Default: none.
	Logger *slog.Logger
	// Meter gets the metrics aee.sdsi.*. Default: none.
	Meter metric.MeterProvider
}

// A Desk serves the templates of one agent.
type Desk struct {
	cfg      DeskConfig
	log      *slog.Logger
	own      []*template.Template
	current  map[string]*version // by scenario
	io       string              // the intent of the agent's own io schemas; "": none
	intents  *intents.Registry
	versions atomic.Pointer[Versions]
	learner  Learner // nil: the desk learns nothing
	tel      telemetry

	mu     sync.Mutex
	known  map[string]*version // by schema_id
	forms  map[grown]*template.Form
	warned map[string]bool // withdrawn keys that were logged as warnings
}

// A version is a template that is ready for use.
type version struct {
	*template.Template
	form    *template.Form
	handled string // the intent under which the handler gets the tasks
	held    bool   // the values must also fit the agent's own input schema
}

// maxKnown is how many versions of other workers a desk remembers.
const maxKnown = 256

// NewDesk makes a desk, or returns all errors in its templates.
func NewDesk(cfg DeskConfig) (*Desk, error) {
	if len(cfg.Templates) == 0 {
		return nil, errors.New("sdsi: a desk has at least one template")
	}
	d := &Desk{cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), current: map[string]*version{}, known: map[string]*version{}, forms: map[grown]*template.Form{}, warned: map[string]bool{}}
	tel, err := newTelemetry(cfg.Meter)
	if err != nil {
		return nil, err
	}
	d.tel = tel
	var bad []error
	for _, t := range cfg.Templates {
		v, err := d.ready(t)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		if d.known[t.SchemaID] != nil {
			bad = append(bad, fmt.Errorf("two templates have the schema_id %q", t.SchemaID))
		}
		d.known[t.SchemaID] = v
		d.own = append(d.own, v.Template)
		if now := d.current[t.Scenario]; now == nil || template.LessID(now.SchemaID, t.SchemaID) {
			d.current[t.Scenario] = v
		}
	}
	return d, errors.Join(bad...)
}

func (d *Desk) ready(t *template.Template) (*version, error) {
	t = t.Complete()
	if err := t.Validate(); err != nil {
		return nil, err
	}
	form, err := template.NewForm(t, template.FormOptions{Unknown: d.cfg.Unknown})
	if err != nil {
		return nil, err
	}
	return &version{Template: t, form: form, handled: handledAs(t.SchemaID)}, nil
}

// handledAs returns the intent under which a handler gets the exchanges of a template. A schema_id
// may contain characters that an intent may not contain.
func handledAs(schemaID string) string {
	name := intents.Exchange + "." + schemaID
	if intents.CheckName(name) == nil {
		return name
	}
	sum := sha256.Sum256([]byte(schemaID))
	return intents.Exchange + "._" + hex.EncodeToString(sum[:16])
}

// Scenarios returns the names of the scenarios, sorted.
func (d *Desk) Scenarios() []string {
	return slices.Sorted(maps.Keys(d.current))
}

// Current returns the current template of each scenario, in the order of [Desk.Scenarios].
func (d *Desk) Current() []*template.Template {
	var all []*template.Template
	for _, name := range d.Scenarios() {
		all = append(all, d.current[name].Template)
	}
	return all
}

// Learn sets the learner that gets the texts of "other" (SDSI 6.2). Call it before the agent is
// served. Default: the desk learns nothing.
func (d *Desk) Learn(l Learner) { d.learner = l }

// Attach puts the desk in front of an agent's handler, and registers the intents of SDSI
// with it. Call it once, before the agent is served.
func (d *Desk) Attach(a *mesh.Agent) error {
	if a.Intents == nil {
		a.Intents = intents.NewRegistry()
	}
	d.intents, d.io = a.Intents, a.DefaultIntent
	if err := a.Intents.Register(template.Intents()...); err != nil {
		return err
	}
	for _, v := range d.known {
		v.held = d.ofOwnSchema(v.Template)
		if err := d.register(v); err != nil {
			return err
		}
	}
	a.Scenarios = d.Scenarios()
	a.Classify = classify
	next := a.Handler
	a.Handler = mesh.HandlerFunc(func(ctx context.Context, t *mesh.Task) (json.RawMessage, error) {
		return d.handle(ctx, t, next)
	})
	return nil
}

// register registers the response schema of a version with the agent.
func (d *Desk) register(v *version) error {
	if len(v.ResponseSchema) == 0 && d.io != "" {
		v.handled, v.held = d.io, true
		return nil
	}
	err := d.intents.Replace(intents.Definition{Intent: v.handled, Result: v.ResponseSchema})
	if err != nil {
		return fmt.Errorf("template %s: response_schema: %w", v.SchemaID, err)
	}
	return nil
}

// ofOwnSchema reports whether a template was made from the agent's own input schema: its keys are
// the schema's properties.
func (d *Desk) ofOwnSchema(t *template.Template) bool {
	own := d.intents.Schema(d.io, intents.Task)
	if own == nil {
		return false
	}
	made, err := template.FromJSONSchema(t.SchemaID, t.Scenario, own.JSON(), nil)
	return err == nil && slices.EqualFunc(made.Keys, t.Keys, func(a, b template.Key) bool { return a.Name == b.Name && a.Property == b.Property })
}

// classify is the [mesh.Agent].Classify of an agent with a desk.
func classify(e *envelope.Envelope) (intent string, atOnce bool) {
	intent = e.Intent
	switch {
	case intent == intents.SchemaGet, intent == intents.SchemaList:
		return intent, true
	case intent == intents.Exchange, intents.Reserved(intent):
		return intent, false
	}
	if r, ok := template.Recognize(e.Payload); ok {
		return r.Intent, r.Intent == intents.SchemaGet
	}
	return intent, false
}

// handle answers tasks of SDSI, and passes all others to the agent's handler.
func (d *Desk) handle(ctx context.Context, t *mesh.Task, next mesh.Handler) (json.RawMessage, error) {
	intent, payload := t.Intent(), t.Envelope.Payload
	if t.Envelope.Intent != intent {
		if r, ok := template.Recognize(payload); ok {
			payload = r.Payload
		}
	}
	switch intent {
	case intents.SchemaGet:
		return d.get(ctx, t, payload)
	case intents.SchemaList:
		return d.list()
	case intents.Exchange:
		return d.exchange(ctx, t, payload, next)
	}
	if intents.Inner(intent) {
		return nil, envelope.Errorf(envelope.CodeIntentUnknown, "no task has an intent under %s.; send %[1]s with a schema_id and a payload", intents.Exchange)
	}
	return next.Handle(ctx, t)
}

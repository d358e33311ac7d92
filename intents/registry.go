package intents

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// A Definition is one intent with the schemas of its payloads. A variant that is nil or
// null has no schema and is not validated; an intent may have no schemas at all.
type Definition struct {
	Intent string
	Task   json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

// FromIO returns the definition for an AAIF agent's contract: io.input_schema is the
// schema of the intent's task payloads, io.output_schema that of its result payloads.
func FromIO(intent string, input, output json.RawMessage) Definition {
	return Definition{Intent: intent, Task: input, Result: output}
}

// compile checks the name's form and compiles the schemas; it returns all problems at
// once. It accepts reserved names.
func (d Definition) compile() (*intent, error) {
	var problems []error
	if err := CheckName(d.Intent); err != nil {
		problems = append(problems, err)
	}
	compiled := &intent{}
	for i, v := range variants {
		if !d.has(v) {
			continue
		}
		s, err := d.compileVariant(v)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		compiled.schemas[i] = func() *Schema { return s }
	}
	return compiled, errors.Join(problems...)
}

// compileVariant compiles the schema of a variant that has one.
func (d *Definition) compileVariant(v Variant) (*Schema, error) {
	s, err := schema.Compile(d.variant(v))
	if err == nil && !s.TakesObject() {
		err = &SchemaError{Problems: []schema.Problem{{Keyword: "type", Message: "no object fits it, and a payload is always an object (AEE, validity rule 4)"}}}
	}
	var refused *SchemaError
	if errors.As(err, &refused) {
		refused.Subject = fmt.Sprintf("%s schema of %s", v, clip.Text(d.Intent, MaxNameLength))
	}
	return s, err
}

// has reports whether a variant has a schema.
func (d *Definition) has(v Variant) bool {
	raw := d.variant(v)
	return len(raw) > 0 && string(raw) != "null"
}

func (d *Definition) variant(v Variant) json.RawMessage {
	switch v {
	case Task:
		return d.Task
	case Result:
		return d.Result
	}
	return d.Error
}

// A Registry holds intents and the schemas of their payloads. The seven reserved intents
// and the mesh's commands are always in it. Any number of goroutines may use it at once;
// readers never wait.
type Registry struct {
	mu      sync.Mutex // held by writers
	current atomic.Pointer[snapshot]
}

// A snapshot is the immutable content of a registry at a time.
type snapshot struct {
	intents map[string]*intent
	names   []string // sorted, without those that are [Inner]
}

type intent struct {
	schemas [len(variants)]func() *Schema // by Variant.index; nil where there is none
}

// NewRegistry returns a registry with the reserved intents.
func NewRegistry() *Registry {
	r := &Registry{}
	first := builtin()
	r.current.Store(&first)
	return r
}

// Register adds an application's intents: all of them or, if anything is wrong with one,
// none. The error joins all problems: a [*NameError] for an illegal or reserved name
// ([ErrReserved]), [ErrRegistered] for an intent that exists already, a [*SchemaError]
// for a schema.
func (r *Registry) Register(definitions ...Definition) error {
	return r.add(definitions, false)
}

// Replace is [Registry.Register] for intents that may exist already: the new definitions
// replace the old ones. Reserved intents cannot be replaced.
func (r *Registry) Replace(definitions ...Definition) error {
	return r.add(definitions, true)
}

func (r *Registry) add(definitions []Definition, replace bool) error {
	fresh := make(map[string]*intent, len(definitions))
	var problems []error
	for _, d := range definitions {
		compiled, err := d.compile()
		if err != nil {
			problems = append(problems, err)
		}
		if why := reservedFor(d.Intent); why != "" {
			problems = append(problems, &NameError{Intent: d.Intent, Reason: why, cause: ErrReserved})
		}
		if _, twice := fresh[d.Intent]; twice {
			problems = append(problems, fmt.Errorf("%w: %s, twice in one call", ErrRegistered, quoted(d.Intent)))
		}
		fresh[d.Intent] = compiled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.current.Load()
	if !replace {
		for _, name := range slices.Sorted(maps.Keys(fresh)) {
			if now.intents[name] != nil && !Reserved(name) {
				problems = append(problems, fmt.Errorf("%w: %s", ErrRegistered, quoted(name)))
			}
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	next := &snapshot{intents: maps.Clone(now.intents)}
	maps.Copy(next.intents, fresh)
	next.names = slices.DeleteFunc(slices.Sorted(maps.Keys(next.intents)), Inner)
	r.current.Store(next)
	return nil
}

// Has reports whether the registry contains an intent, with schemas or without.
func (r *Registry) Has(intent string) bool { return r.current.Load().intents[intent] != nil }

// Schema returns the schema of an intent's variant, nil if there is none.
func (r *Registry) Schema(intent string, v Variant) *Schema {
	known := r.current.Load().intents[intent]
	if i := v.index(); known != nil && i >= 0 && known.schemas[i] != nil {
		return known.schemas[i]()
	}
	return nil
}

// List returns the names of the intents in a namespace, sorted; all of them for "". A
// namespace consists of whole tokens: "ops", "ops." and "ops.*" all mean ops itself and
// everything under it, but not opsec. List leaves out the names that no task may have ([Inner]).
func (r *Registry) List(namespace string) []string {
	names := r.current.Load().names
	namespace = strings.TrimSuffix(strings.TrimSuffix(namespace, "*"), ".")
	list := make([]string, 0, len(names))
	for _, name := range names {
		rest, under := strings.CutPrefix(name, namespace)
		if namespace == "" || under && (rest == "" || rest[0] == '.') {
			list = append(list, name)
		}
	}
	return list
}

// Validate validates a payload against the schema of its intent and variant. It returns
// nil if the payload conforms or the variant has no schema, [ErrUnknownIntent] if the
// registry does not know the intent, and otherwise a [*ValidationError] with all
// problems.
func (r *Registry) Validate(intent string, v Variant, payload json.RawMessage) error {
	known := r.current.Load().intents[intent]
	if known == nil {
		return fmt.Errorf("%w: %s", ErrUnknownIntent, quoted(intent))
	}
	i := v.index()
	if i < 0 || known.schemas[i] == nil {
		return nil
	}
	err := known.schemas[i]().Validate(payload)
	if invalid, ok := err.(*ValidationError); ok {
		invalid.Subject = fmt.Sprintf("%s payload of %s", v, intent)
	}
	return err
}

package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/definitions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/intents"
)

// describeSchemas prints the schemas of an agent's own intents, as the agent
// publishes them.
func describeSchemas(a *session.App, ctx context.Context, s *session.Session, entity string) error {
	asking, cancel := context.WithTimeout(ctx, a.Conn.Wait())
	defer cancel()
	var list intents.CapabilityListResult
	if _, err := s.Node.Query(asking, entity, intents.CapabilityList, intents.CapabilityListTask{Schemas: true}, &list); err != nil {
		return outcome.AskFailed(ctx, err)
	}
	schemas := list.Schemas
	if schemas == nil {
		var err error
		if schemas, err = registeredSchemas(s, ctx, entity); err != nil {
			return err
		}
	}
	if a.Term.JSON {
		return a.Term.Object(schemas)
	}
	raw, err := json.Marshal(schemas)
	if err != nil {
		return fmt.Errorf("encode schemas: %w", err)
	}
	a.Term.Line("%s", a.Term.Data.Safe(term.Indented(raw)))
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		if schemas[name].Task == nil {
			a.Term.Note("%s takes any object", term.Printable(name))
		}
	}
	for _, name := range list.Intents {
		if _, told := schemas[name]; !told && !intents.Reserved(name) {
			a.Term.Note("%s is left out: the schemas are too large together", term.Printable(name))
		}
	}
	return nil
}

// registeredSchemas returns the schemas of an agent's registered definition,
// for workers of older releases that do not publish theirs.
func registeredSchemas(s *session.Session, ctx context.Context, entity string) (map[string]intents.IntentSchemas, error) {
	unknown := outcome.Hinted(fmt.Errorf("the worker of %s does not report its schemas", entity),
		"A worker of this release does. \"aeemesh agents import FILE\" registers a definition, of which they are shown, too.")
	reg, err := definitions.Open(s)
	if err != nil {
		return nil, unknown
	}
	listing, cancel := context.WithTimeout(ctx, s.App.Conn.Wait())
	defer cancel()
	all, err := reg.List(listing)
	if err != nil {
		return nil, unknown
	}
	i := slices.IndexFunc(all, func(e registry.Entry) bool { return !e.Removed && e.Err == nil && e.Record.Entity == entity })
	if i < 0 {
		return nil, unknown
	}
	doc, err := all[i].Record.Parse()
	if err != nil {
		return nil, fmt.Errorf("the registered definition of %s: %w", entity, err)
	}
	var told intents.IntentSchemas
	if io := doc.Definition().Agent.IO; io != nil {
		told.Task, told.Result = json.RawMessage(io.InputSchema), json.RawMessage(io.OutputSchema)
	}
	return map[string]intents.IntentSchemas{intents.RunIntent(entity): told}, nil
}

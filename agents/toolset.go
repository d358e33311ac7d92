package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/intents"
)

// DefaultParallelTools is how many tools run at once for one task.
const DefaultParallelTools = 4

// maxCalls is how many tools a model may call in one turn.
const maxCalls = 64

// toolset is what a model may call.
type toolset struct {
	defs     []model.ToolDef
	tools    map[string]*tool.Guarded
	parallel int
	policy   map[string]LostCall
}

// newToolset resolves the document's function tools among those that the
// operator registered. Tools of other protocols are left out, and the notices
// say so.
func newToolset(def *aaif.Definition, opts Options) (*toolset, error) {
	s := &toolset{tools: make(map[string]*tool.Guarded), parallel: opts.ParallelTools, policy: opts.LostCalls}
	if s.parallel <= 0 {
		s.parallel = DefaultParallelTools
	}
	registry := opts.Tools
	if registry == nil {
		registry = new(tool.Registry)
	}
	var bad []error
	for i := range def.Agent.Tools {
		t := &def.Agent.Tools[i]
		if t.EffectiveProtocol() != aaif.ProtocolFunction {
			continue
		}
		if err := s.add(t, registry); err != nil {
			bad = append(bad, fmt.Errorf("/agent/tools/%d: %w", i, err))
		}
	}
	if len(bad) == 0 {
		bad = append(bad, s.checkLost(opts.LostCalls, registry))
	}
	return s, errors.Join(bad...)
}

func (s *toolset) add(t *aaif.Tool, registry *tool.Registry) error {
	if s.tools[t.Name] != nil {
		return fmt.Errorf("there are two tools named %s", t.Name)
	}
	function, err := registry.Lookup(t.Name)
	if err != nil {
		there := "none is registered"
		if names := registry.Names(); len(names) > 0 {
			there = "registered are " + strings.Join(names, ", ")
		}
		return fmt.Errorf("no function is named %s: %s", t.Name, there)
	}
	guarded, err := tool.Guard(function, tool.Options{
		Definition: tool.Definition{Name: t.Name, Description: t.Description, Parameters: t.ParametersSchema, Output: t.OutputSchema},
		Timeout:    t.TimeoutSeconds.Seconds(), // 0: the guard's default
		Compile:    compileStrangers,
	})
	if err != nil {
		return err
	}
	s.tools[t.Name] = guarded
	d := guarded.Definition()
	s.defs = append(s.defs, model.ToolDef{Name: d.Name, Description: d.Description, Parameters: d.Parameters})
	return nil
}

// compileStrangers compiles a schema that may come from anybody's document.
func compileStrangers(schema json.RawMessage) (tool.Validator, error) { return intents.Compile(schema) }

// missing is what a model is told that calls a tool which does not exist.
func (s *toolset) missing(name string) *tool.Error {
	names := make([]string, len(s.defs))
	for i, d := range s.defs {
		names[i] = d.Name
	}
	return &tool.Error{Kind: tool.ErrNotFound, Tool: name, Message: "there is no such tool; there are: " + strings.Join(names, ", ")}
}

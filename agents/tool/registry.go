package tool

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Registry holds tools by name, for a document's tools of protocol function
// (AAIF, "Tool Definitions"). The zero Registry is empty and ready to use. It
// is safe for concurrent use.
type Registry struct {
	mu    sync.RWMutex
	tools map[string]Tool
}

// Add registers tools. It refuses an invalid definition and a name that is
// taken, and then adds none of them.
func (r *Registry) Add(tools ...Tool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := maps.Clone(r.tools)
	if next == nil {
		next = make(map[string]Tool, len(tools))
	}
	for _, t := range tools {
		def := t.Definition()
		if err := def.Validate(); err != nil {
			return err
		}
		if _, ok := next[def.Name]; ok {
			return fmt.Errorf("tool %s: the name is taken", def.Name)
		}
		next[def.Name] = t
	}
	r.tools = next
	return nil
}

// Lookup returns the tool of that name, or an [ErrNotFound].
func (r *Registry) Lookup(name string) (Tool, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if t, ok := r.tools[name]; ok {
		return t, nil
	}
	return nil, &Error{Kind: ErrNotFound, Tool: name, Message: "no tool has this name"}
}

// Names returns the names in order.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.tools))
}

// Tools returns the tools in the order of their names.
func (r *Registry) Tools() []Tool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Tool, 0, len(r.tools))
	for _, name := range slices.Sorted(maps.Keys(r.tools)) {
		out = append(out, r.tools[name])
	}
	return out
}

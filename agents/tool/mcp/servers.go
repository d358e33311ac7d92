package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// Servers are the MCP servers that the agents of a process share. They are safe
// for concurrent use.
type Servers struct {
	cfg  Config
	life context.Context
	die  context.CancelFunc

	mu    sync.Mutex
	links map[string]*link
}

// NewServers checks the operator's list. It starts no program and makes no
// connection.
func NewServers(cfg Config) (*Servers, error) {
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		s := cfg.Servers[name]
		if err := s.CheckNamed(name); err != nil {
			bad = append(bad, fmt.Errorf("mcp server %.80q: %w", name, err))
		}
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	life, die := context.WithCancel(context.Background())
	return &Servers{cfg: cfg.withDefaults(), life: life, die: die, links: make(map[string]*link)}, nil
}

// Open makes a source for an entry of a document's tools[]. It does no I/O: the
// server is reached when its tools are requested. The error says why the
// operator does not permit the entry, or what is wrong with it.
func (s *Servers) Open(entry *aaif.Tool) (tool.Source, error) {
	if entry.Endpoint == "" {
		return nil, errors.New("a tool of protocol mcp needs an endpoint: mcp://SERVER/TOOL")
	}
	t, capability, err := s.cfg.resolve(entry.Endpoint, entry.Auth)
	if err != nil {
		return nil, err
	}
	if one(capability) && !t.permits(capability) {
		return nil, fmt.Errorf("the operator lets documents have no tool %.80q of the MCP server %s", capability, t.name)
	}
	if t.URL != "" { // report unsupported settings of an auth block now, not at the first call
		if _, err := s.cfg.Client(context.Background(), t.URL, t.Auth, t.listed); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.links[t.key]
	if l == nil {
		l = &link{target: t, cfg: &s.cfg, log: s.cfg.Log.With("server", t.name), life: s.life, listing: make(chan struct{}, 1)}
		s.links[t.key] = l
	}
	return &source{link: l, capability: capability, entry: *entry}, nil
}

// Close closes all sessions, and returns when they have ended, after a few
// seconds at most. Running calls fail.
func (s *Servers) Close() error {
	s.mu.Lock()
	links := slices.Collect(maps.Values(s.links))
	s.mu.Unlock()
	var ending sync.WaitGroup
	for _, l := range links {
		ending.Go(l.end)
	}
	ending.Wait()
	s.die()
	for _, l := range links {
		l.work.Wait()
	}
	return nil
}

// source is an entry of a document's tools[].
type source struct {
	link       *link
	capability string
	entry      aaif.Tool

	mu    sync.Mutex
	given map[string]*Tool // the last ones, by the server's names; unchanged tools are the same values
}

// Tools returns the tools of the server that the entry selects.
func (s *source) Tools(ctx context.Context) ([]tool.Tool, error) {
	list, err := s.link.catalogue(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &tool.Error{Kind: tool.ErrUnavailable, Tool: s.entry.Name, Message: err.Error(), Err: err}
	}
	if one(s.capability) {
		r := list.find(s.capability)
		if r == nil {
			return nil, &tool.Error{Kind: tool.ErrNotFound, Tool: s.entry.Name, Message: s.link.missing(list, s.capability)}
		}
		return s.give([]*remote{r}, []tool.Definition{s.definition(r)}), nil
	}
	var chosen []*remote
	var defs []tool.Definition
	for i := range list.tools {
		if r := &list.tools[i]; selects(s.capability, r.name) && s.link.permits(r.name) {
			chosen = append(chosen, r)
			defs = append(defs, tool.Definition{Name: r.legal, Description: r.description, Parameters: r.input, Output: r.output})
		}
	}
	out := s.give(chosen, defs)
	if len(out) == 0 {
		s.link.log.Warn("mcp server lists no tool for an entry", "tool", s.entry.Name, "capability", s.capability)
	}
	return out, nil
}

// definition returns the definition of the only tool of an entry: with the
// document's texts, and with the server's schemas if the document has none.
func (s *source) definition(r *remote) tool.Definition {
	d := tool.Definition{Name: s.entry.Name, Description: s.entry.Description, Parameters: s.entry.ParametersSchema, Output: s.entry.OutputSchema}
	d.Description = cmp.Or(d.Description, r.description)
	if len(d.Parameters) == 0 {
		d.Parameters = r.input
	}
	if len(d.Output) == 0 {
		d.Output = r.output
	}
	return d
}

// give returns the tools of a list; an unchanged tool is the same value as
// before.
func (s *source) give(list []*remote, defs []tool.Definition) []tool.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	given, out := make(map[string]*Tool, len(list)), make([]tool.Tool, len(list))
	for i, r := range list {
		t := &Tool{link: s.link, remote: r.name, def: defs[i], repeatable: r.repeatable && s.link.target.listed && !s.link.Untrusted}
		if was := s.given[r.name]; was != nil && was.repeatable == t.repeatable && equal(was.def, t.def) {
			t = was
		}
		given[r.name], out[i] = t, t
	}
	s.given = given
	return out
}

func equal(a, b tool.Definition) bool {
	same := func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }
	return a.Name == b.Name && a.Description == b.Description && same(a.Parameters, b.Parameters) && same(a.Output, b.Output)
}

// missing is the error about a tool that a server does not have; it lists the
// server's tools.
func (l *link) missing(list *catalogue, name string) string {
	var there []string
	for _, r := range list.tools {
		if l.permits(r.name) {
			there = append(there, r.name)
		}
	}
	words := "it lists none"
	if len(there) > 0 {
		words = "it lists " + l.cfg.shortened(strings.Join(there, ", "), 1<<10)
	}
	return fmt.Sprintf("the MCP server %s has no tool %.80q: %s", l.name, name, words)
}

// Close does nothing: other sources share the server; see [Servers.Close].
func (*source) Close() error { return nil }

package topology

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// Source is a document, and where it came from.
type Source struct {
	Name string // as messages call it
	Path string // of its file, absolute; "": none. It is what file: references mean
	As   string // its entity; default: that of its name
	Doc  *aaif.Document
}

// entity is the agent's entity, "" where its name gives none.
func (s *Source) entity() string {
	if s.As != "" {
		return s.As
	}
	entity, err := aaif.EntityName(s.Doc.Definition().Agent.Name)
	if err != nil {
		return ""
	}
	return entity
}

// Together checks documents by themselves and against one another: whom they
// name is looked for among them, agents that call one another in a circle are
// found, and what one gives is held against what the next one takes. Platform
// manifests among them say which languages and patterns their workers know. The
// problems are by the place of their document.
func Together(sources []Source) [][]aaif.Problem {
	g := &group{sources: sources, teams: make([]*team, len(sources))}
	for i := range sources {
		g.teams[i] = newTeam(sources[i].Doc)
	}
	g.index()
	for i, t := range g.teams {
		if t != nil {
			g.roles(i, t)
			t.check()
			t.nameless(func(m *member) bool { return len(g.resolve(i, m.ref)) > 0 })
		}
	}
	if len(sources) > 1 {
		g.twins()
		for i, t := range g.teams {
			if t != nil && t.o != nil {
				g.absent(i, t)
				g.fit(i, t)
			}
		}
		g.circles()
		g.platforms()
	}
	problems := make([][]aaif.Problem, len(sources))
	for i, t := range g.teams {
		if t != nil {
			problems[i] = sources[i].Doc.Locate(t.problems)
		}
	}
	return problems
}

// group is what several documents are together.
type group struct {
	sources []Source
	teams   []*team // nil where a document is no agent definition
	by      map[string]int
	skills  map[string][]int
}

// index notes how each document may be referred to.
func (g *group) index() {
	g.by, g.skills = make(map[string]int), make(map[string][]int)
	note := func(key string, i int) {
		if _, taken := g.by[key]; key != "" && !taken {
			g.by[key] = i
		}
	}
	for i, t := range g.teams {
		if t == nil {
			continue
		}
		note(strings.ToLower(t.def.AgentID), i)
		note(g.sources[i].entity(), i)
		note(g.sources[i].Path, i)
		for _, skill := range t.def.Agent.Skills {
			g.skills[registry.FoldSkill(skill)] = append(g.skills[registry.FoldSkill(skill)], i)
		}
	}
}

// skillScheme is how a reference names a skill in the place of an agent.
const skillScheme = "skill:"

// resolve is the places of the documents that a reference of one of them may
// mean.
func (g *group) resolve(from int, ref string) []int {
	scheme, rest, uri := strings.Cut(ref, ":")
	if orchestrate.IsEntity(ref) || !uri {
		scheme = ""
	}
	keys := []string{ref, strings.ToLower(ref), "agent." + ref} // an agent_id, an entity, a name
	if entity, err := aaif.EntityName(ref); err == nil && !uri {
		keys = append(keys, entity)
	}
	switch strings.ToLower(scheme) {
	case "skill":
		return g.skills[registry.FoldSkill(rest)]
	case "urn":
		keys = []string{strings.ToLower(strings.TrimPrefix(strings.ToLower(rest), "uuid:"))}
	case "nats":
		name := strings.TrimPrefix(rest, "//registry/")
		keys = []string{name, strings.ToLower(name), "agent." + name}
	case "file":
		keys = []string{g.path(from, rest)}
	case "":
		if isPath(ref) && !orchestrate.IsEntity(ref) { // agent.yaml is an entity
			keys = []string{g.path(from, ref)}
		}
	}
	for _, key := range keys {
		if i, ok := g.by[key]; ok && key != "" {
			return []int{i}
		}
	}
	return nil
}

// path is the file that a document names, as an absolute path.
func (g *group) path(from int, rest string) string {
	if u, err := url.Parse(rest); err == nil && u.Host == "" {
		rest = u.Path
	}
	name := filepath.FromSlash(rest)
	if !filepath.IsAbs(name) {
		if g.sources[from].Path == "" {
			return ""
		}
		name = filepath.Join(filepath.Dir(g.sources[from].Path), name)
	}
	return filepath.Clean(name)
}

// isPath is true of a reference to a file without a scheme.
func isPath(ref string) bool {
	if strings.HasPrefix(ref, "./") || strings.HasPrefix(ref, "../") || strings.HasPrefix(ref, "/") {
		return true
	}
	switch strings.ToLower(filepath.Ext(ref)) {
	case ".json", ".yaml", ".yml", ".cbor":
		return true
	}
	return false
}

// one is the document that a reference means, -1 if it is not among them, or may
// be several.
func (g *group) one(from int, ref string) int {
	if found := g.resolve(from, ref); len(found) == 1 {
		return found[0]
	}
	return -1
}

// roles notes the members whose own documents say that they merge or judge, in a
// swarm that names nobody for it. The engine looks there only where a reference
// leads to a document.
func (g *group) roles(i int, t *team) {
	if t.pattern != swarm && t.pattern != inTurn {
		return
	}
	merges := t.extras.Synthesizer == "" && !slices.ContainsFunc(t.members, func(m member) bool { return m.alias == string(aaif.RoleSynthesizer) })
	judges := !slices.ContainsFunc(t.members, func(m member) bool { return m.role == aaif.SubagentEvaluator })
	for j := range t.members {
		m := &t.members[j]
		if m.role != "" || orchestrate.IsEntity(m.ref) {
			continue
		}
		k := g.one(i, m.ref)
		if k < 0 {
			t.unread = true
			continue
		}
		if o := g.teams[k].o; k == i || o == nil || len(o.Subagents) > 0 {
			continue
		} else if merges && o.Role == aaif.RoleSynthesizer {
			m.use(merging)
			merges = false
		} else if judges && o.Role == aaif.RoleEvaluator {
			m.role = aaif.SubagentEvaluator
		}
	}
}

// twins are documents that cannot be told apart.
func (g *group) twins() {
	for i, t := range g.teams {
		if t == nil {
			continue
		}
		if first, ok := g.by[strings.ToLower(t.def.AgentID)]; ok && first != i && t.def.AgentID != "" {
			t.warn("/agent_id", aaif.RuleReference, "give each agent an agent_id of its own", "%s has the same agent_id", g.sources[first].Name)
		}
		if entity := g.sources[i].entity(); entity != "" && g.by[entity] != i {
			t.warn("/agent/name", aaif.RuleReference, "give one of them another name", "%s is %s too: the two would share their tasks", g.sources[g.by[entity]].Name, entity)
		}
	}
}

// nearest is the entity that another was most likely meant to be. What they all
// begin with makes none of them like another, and one short name is much like
// the next.
func nearest(ref string, entities []string) string {
	kind, name, _ := strings.Cut(ref, ".")
	var names []string
	for _, e := range entities {
		if k, n, _ := strings.Cut(e, "."); k == kind {
			names = append(names, n)
		}
	}
	near := aaif.Nearest(name, names)
	if near == "" || len(near) < len(name)-2 || len(name) < 4 {
		return ""
	}
	return kind + "." + near
}

// absent is about members that are not among the documents, of teams that have
// others there.
func (g *group) absent(i int, t *team) {
	var entities, skills []string
	for j, other := range g.teams {
		if other != nil && j != i {
			entities = append(entities, g.sources[j].entity())
			skills = append(skills, other.def.Agent.Skills...)
		}
	}
	some := slices.ContainsFunc(t.members, func(m member) bool { return len(g.resolve(i, m.ref)) > 0 })
	for j := range t.members {
		m := &t.members[j]
		pointer := m.pointer
		if j < t.listed {
			pointer += "/ref"
		}
		found := g.resolve(i, m.ref)
		for _, k := range found {
			if g.teams[k].def.Status == aaif.StatusDeprecated {
				t.warn(pointer, aaif.RuleDeprecated, "host it with --allow-deprecated, or name another one", "%s is deprecated", quote(m.alias))
			}
		}
		if len(found) > 0 || !orchestrate.IsRef(m.ref) {
			continue
		}
		near := ""
		if skill, ok := strings.CutPrefix(m.ref, skillScheme); ok {
			if near = aaif.Nearest(skill, skills); near != "" {
				near = skillScheme + near
			}
		} else {
			switch subject.EntityType(m.ref) {
			case subject.TypeHuman, subject.TypeService:
				continue // nobody has a document of these
			}
			near = nearest(m.ref, entities)
		}
		switch {
		case near != "":
			t.warn(pointer, aaif.RuleReference, fmt.Sprintf("did you mean %q?", near), "none of the documents given is %s", quote(m.ref))
		case some:
			t.warn(pointer, aaif.RuleReference, "it has to be somewhere else in the mesh", "none of the documents given is %s", quote(m.ref))
		}
	}
}

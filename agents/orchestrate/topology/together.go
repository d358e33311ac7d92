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
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// Source is a document and its origin.
type Source struct {
	Name string // its name in messages
	Path string // the absolute path of its file, which file: references are compared with; "": none
	Doc  *aaif.Document
}

// entity is the agent's entity; "" if its name gives none.
func (s *Source) entity() string {
	entity, err := aaif.EntityName(s.Doc.Definition().Agent.Name)
	if err != nil {
		return ""
	}
	return entity
}

// Together checks documents, each by itself and all against one another:
// members are looked up among the documents, agents that call one another in a
// circle are reported, and outputs are compared with the inputs of the next
// agent. Platform manifests among the documents declare the languages and
// patterns of their workers. The problems are indexed like the sources.
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
		g.duplicates()
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

// group is a set of documents that are checked together.
type group struct {
	sources []Source
	teams   []*team // nil for documents that are no agent definition
	by      map[string]int
	skills  map[string][]int
}

// index records the references by which each document can be named.
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

// skillScheme is the scheme of a reference to a skill instead of an agent.
const skillScheme = "skill:"

// resolve returns the indexes of the documents that a reference in one of them
// may mean.
func (g *group) resolve(from int, ref string) []int {
	scheme, rest, uri := strings.Cut(ref, ":")
	if orchestrate.IsEntity(ref) || !uri {
		scheme = ""
	}
	keys := []string{ref, strings.ToLower(ref), "agent." + ref} // for an agent_id, an entity, and a name
	if entity, err := aaif.EntityName(ref); err == nil && !uri {
		keys = append(keys, entity)
	}
	switch strings.ToLower(scheme) {
	case "skill":
		return g.skills[registry.SkillOf(rest)]
	case "urn":
		keys = []string{strings.ToLower(strings.TrimPrefix(strings.ToLower(rest), "uuid:"))}
	case "nats":
		name := strings.TrimPrefix(rest, "//registry/")
		keys = []string{name, strings.ToLower(name), "agent." + name}
	case "file":
		keys = []string{g.path(from, rest)}
	case "":
		if orchestrate.IsPath(ref) && !orchestrate.IsEntity(ref) { // agent.yaml is an entity id
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

// path returns the absolute path of the file that a document names.
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

// one returns the document that a reference means; -1 if it is not among them,
// or if it may be several.
func (g *group) one(from int, ref string) int {
	if found := g.resolve(from, ref); len(found) == 1 {
		return found[0]
	}
	return -1
}

// roles marks the members whose own documents say that they merge or judge, in
// a swarm that names no member for it. The engine does the same only for
// references that lead to a document.
func (g *group) roles(i int, t *team) {
	if t.pattern != swarm && t.pattern != inTurn {
		return
	}
	merges := t.extras.Synthesizer == "" && !slices.ContainsFunc(t.members, func(m member) bool { return m.alias == string(aaif.RoleSynthesizer) })
	judges := t.scores() && !slices.ContainsFunc(t.members, func(m member) bool { return m.role == aaif.SubagentEvaluator })
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

// duplicates reports documents that cannot be distinguished.
func (g *group) duplicates() {
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

// nearest returns the entity that was most likely meant by an unknown
// reference. A common prefix does not count as similarity, and short names are
// never similar.
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

// absent reports members that are not among the documents, for teams whose
// other members are.
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
				continue // people and services have no document
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

package topology

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
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
			g.synthesizers(i, t)
			t.check()
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
			g.skills[skill] = append(g.skills[skill], i)
		}
	}
}

// skillScheme is how a reference names a skill in the place of an agent.
const skillScheme = "skill:"

// resolve is the places of the documents that a reference of one of them may
// mean.
func (g *group) resolve(from int, ref string) []int {
	if skill, ok := strings.CutPrefix(ref, skillScheme); ok {
		return g.skills[skill]
	}
	key := ref
	if u, err := url.Parse(ref); err == nil && u.Scheme == "file" {
		key = u.Path
		if u.Opaque != "" {
			key = u.Opaque
		}
		if key = filepath.FromSlash(key); !filepath.IsAbs(key) {
			key = filepath.Join(filepath.Dir(g.sources[from].Path), key)
		}
		key = filepath.Clean(key)
	}
	if i, ok := g.by[key]; ok {
		return []int{i}
	}
	if i, ok := g.by[strings.ToLower(key)]; ok {
		return []int{i}
	}
	return nil
}

// one is the document that a reference means, -1 if it is not among them, or may
// be several.
func (g *group) one(from int, ref string) int {
	if found := g.resolve(from, ref); len(found) == 1 {
		return found[0]
	}
	return -1
}

// synthesizers notes the members whose own documents say that they merge.
func (g *group) synthesizers(i int, t *team) {
	if t.extras.Synthesizer != "" {
		return
	}
	for j := range t.members {
		m := &t.members[j]
		if k := g.one(i, m.ref); k >= 0 && k != i && g.teams[k].o != nil && g.teams[k].o.Role == aaif.RoleSynthesizer {
			m.use(merging)
			t.synthesized = true
			return
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
			if near = aaif.Nearest(m.ref, entities); len(near) < len(m.ref)-2 || len(m.ref) < len("agent.abcd") {
				near = "" // one short name is much like another
			}
		}
		switch {
		case near != "":
			t.warn(pointer, aaif.RuleReference, fmt.Sprintf("did you mean %q?", near), "none of the documents given is %s", quote(m.ref))
		case some:
			t.warn(pointer, aaif.RuleReference, "it has to be somewhere else in the mesh", "none of the documents given is %s", quote(m.ref))
		}
	}
}

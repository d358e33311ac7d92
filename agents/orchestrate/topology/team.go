package topology

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
)

const at = "/agent/orchestration"

// pattern is what a block means: those of package orchestrate, and two more.
type pattern int

const (
	nobody   pattern = iota // no team
	pipeline                //
	router                  //
	swarm                   // at once
	inTurn                  // a swarm of width one
	modelLed                //
)

// moment is when a condition holds, as far as its text tells.
type moment int

const (
	always moment = iota
	sometimes
	never
)

// member is who the block names, under subagents or elsewhere.
type member struct {
	alias, ref, pointer string
	role                aaif.SubagentRole
	when                moment
	uses                []string // what it is for: "step", "worker", "referee", …
}

// team is one document's block, read.
type team struct {
	doc      *aaif.Document
	def      *aaif.Definition
	o        *aaif.Orchestration // nil: none
	extras   orchestrate.Extras
	pattern  pattern
	members  []member       // subagents, then who else is named
	listed   int            // how many of them are subagents
	byName   map[string]int // places of members: the first that is called so, or has the reference
	problems []aaif.Problem
	names    []*member // whose references are mere names

	// unsure: a step names nobody, and may be meant for any of the members.
	unsure bool
	// unread: there are members whose own documents, which nobody has given, may
	// say that they merge or judge.
	unread bool
}

func newTeam(doc *aaif.Document) *team {
	def := doc.Definition()
	if def == nil {
		return nil
	}
	t := &team{doc: doc, def: def, o: def.Agent.Orchestration, byName: make(map[string]int)}
	t.extras, _ = orchestrate.ExtrasOf(def) // what is wrong with it, extension says
	if t.o == nil {
		return t
	}
	for i, s := range t.o.Subagents {
		m := member{alias: s.Alias, ref: s.Ref, role: s.Role, pointer: fmt.Sprintf("%s/subagents/%d", at, i), when: momentOf(s.When)}
		if m.alias == "" {
			m.alias = m.ref
		}
		t.join(m)
	}
	t.listed = len(t.members)
	t.pattern = t.patternOf()
	return t
}

// join adds a member, and notes what it may be called.
func (t *team) join(m member) *member {
	i := len(t.members)
	for _, name := range []string{m.alias, m.ref} {
		if _, taken := t.byName[name]; !taken {
			t.byName[name] = i
		}
	}
	t.members = append(t.members, m)
	return &t.members[i]
}

// patternOf reads the block as docs/orchestration.md has it.
func (t *team) patternOf() pattern {
	switch o := t.o; {
	case len(o.Pipeline) > 0:
		return pipeline
	case len(o.Subagents) == 0:
		return nobody
	case o.Role == aaif.RoleRouter:
		return router
	case o.ParallelExecution != nil && *o.ParallelExecution:
		return swarm
	case t.hasModel():
		return modelLed
	}
	return inTurn
}

// hasModel reports whether the document names a model.
func (t *team) hasModel() bool { return orchestrate.HasModel(t.def) }

// momentOf tells what always and never say, also in the words of the other
// languages. A condition in words is never satisfied.
func momentOf(c *aaif.Condition) moment {
	switch {
	case c == nil, c.Lang == aaif.LangAlways:
		return always
	case c.IsString(), c.Lang == aaif.LangNever:
		return never
	}
	switch text := strings.TrimSpace(c.Text()); {
	case c.Lang != aaif.LangJSONPath && text == "true", c.Lang == aaif.LangJMESPath && text == "`true`":
		return always
	case c.Lang == aaif.LangCEL && text == "false", c.Lang == aaif.LangJSONLogic && text == "false", c.Lang == aaif.LangJMESPath && text == "`false`":
		return never
	}
	return sometimes // one that does not compile is reported by package condition
}

// refs is about the subagents by themselves.
func (t *team) refs() {
	seen := make(map[string]int)
	for i := range t.members[:t.listed] {
		m := &t.members[i]
		if first, twice := seen[m.alias]; twice {
			t.unsure = true
			if t.o.Subagents[i].Alias == "" {
				t.fail(m.pointer, aaif.RuleReference, "give each an alias of its own", "subagents %d and %d are the same, and neither has an alias", first, i)
			} else {
				t.fail(m.pointer+"/alias", aaif.RuleReference, "give each an alias of its own", "another subagent has the alias %s", quote(m.alias))
			}
		} else {
			seen[m.alias] = i
		}
		switch {
		case m.ref == "":
			t.fail(m.pointer+"/ref", aaif.RuleID, refForms, "the reference is empty")
		case !orchestrate.IsRef(m.ref) && !isPath(m.ref):
			t.names = append(t.names, m)
		case t.isSelf(m.ref):
			t.self(m)
		}
	}
	for i := range t.members {
		if j, ok := seen[t.members[i].ref]; ok && j != i && t.members[j].ref != t.members[i].ref {
			t.warn(t.members[j].pointer+"/alias", aaif.RuleReference, "choose another alias", "the alias %s is also the reference of subagent %d: the alias wins", quote(t.members[j].alias), i)
		}
	}
}

// conditions is about the conditions of subagents: those that never hold, and those
// that are not asked, because they are of members which judge or merge.
func (t *team) conditions() {
	for i := range t.members[:t.listed] {
		m, c := &t.members[i], t.o.Subagents[i].When
		switch {
		case c == nil:
		case !m.is(working) && (m.is(refereeing) || m.is(merging) || m.is(judging) || m.is(standingIn)):
			t.warn(m.pointer+"/when", aaif.RuleIgnoredField, "delete it", "the condition is not asked: %s is %s, and is called when that is due", quote(m.alias), m.uses[0])
		case m.when != never:
		case c.IsString():
			hint := `write {"lang": …, "expr": …}; the words can stay as "nl"`
			if t.pattern == pipeline {
				hint += "; or accept that they hold: worker --accept-unhonoured " + aaif.FieldPath(m.pointer+"/when")
			}
			t.warn(m.pointer+"/when", RuleUnreachable, hint, "words are never satisfied here: %s takes no part", quote(m.alias))
		default:
			t.warn(m.pointer+"/when", RuleUnreachable, "delete the subagent, or its condition", "the condition never holds: %s takes no part", quote(m.alias))
		}
	}
}

// nameless says which references are mere names, in one line: only a mesh knows
// who they are.
func (t *team) nameless(known func(*member) bool) {
	var who []string
	pointer := ""
	for _, m := range t.names {
		if known(m) {
			continue
		}
		if who = append(who, quote(m.ref)); pointer == "" {
			pointer = m.pointer + "/ref"
		}
	}
	switch n := len(who); {
	case n == 1:
		t.warn(pointer, RuleName, refForms, "only a mesh can tell who %s is: an agent that is registered or runs under that name", who[0])
	case n > 1:
		t.warn(pointer, RuleName, refForms, "only a mesh can tell who %d of the references are (%s): agents that are registered or run under these names", n, strings.Join(who[:min(n, 5)], ", ")+strings.Repeat(", …", min(1, max(0, n-5))))
	}
}

// treeLimit is what ends the loops that nothing else ends.
const treeLimit = "nothing ends it but the mesh's limits on a tree of tasks"

const refForms = "write an agent_id, a URI, an entity such as agent.reviewer, or skill: and a skill"

// isSelf reports whether a reference means the agent itself, as far as its
// document tells: whoever hosts it may call it otherwise.
func (t *team) isSelf(ref string) bool {
	if t.def.AgentID != "" && strings.EqualFold(ref, t.def.AgentID) {
		return true
	}
	entity, err := aaif.EntityName(t.def.Agent.Name)
	return err == nil && ref == entity
}

// self is about an agent that is its own subagent.
func (t *team) self(m *member) {
	switch {
	case m.when != always:
	case t.pattern != modelLed && m.role != aaif.SubagentFallback:
		t.fail(m.pointer+"/ref", RuleLoop, "name another agent, or give it a when", "the agent is its own subagent, each time: it would never end")
	default:
		t.warn(m.pointer+"/ref", RuleLoop, treeLimit, "the agent is its own subagent")
	}
}

// find is the member that is meant by a name: an alias, or a reference. One that
// the block does not list joins the members. It is nil for a name that is
// neither, of which find says so.
func (t *team) find(pointer, name string, severity aaif.Severity) *member {
	if m := t.lookup(name); m != nil {
		return m
	}
	if orchestrate.IsRef(name) {
		return t.join(member{alias: name, ref: name, pointer: pointer})
	}
	t.add(severity, pointer, aaif.RuleReference, instead(name, t.aliases(), "declare it in subagents"), "no subagent has the alias %s", quote(name))
	return nil
}

// lookup is the member of a name that is known, nil if none is.
func (t *team) lookup(name string) *member {
	if i, ok := t.byName[name]; ok {
		return &t.members[i]
	}
	return nil
}

// aliases are the names to guess from; of very many none is.
func (t *team) aliases() []string {
	if t.listed > 100 {
		return nil
	}
	return t.aliasesOf(t.listed)
}

func (t *team) aliasesOf(n int) []string {
	var names []string
	for _, m := range t.members[:n] {
		names = append(names, m.alias)
	}
	return names
}

// use notes what a member is for.
func (m *member) use(what string) { m.uses = append(m.uses, what) }

func (m *member) is(what string) bool { return slices.Contains(m.uses, what) }

// workers are the places of the subagents that do a swarm's or a router's work.
func (t *team) workers() []int {
	var out []int
	for i := range t.members[:t.listed] {
		m := &t.members[i]
		if m.role != aaif.SubagentEvaluator && m.role != aaif.SubagentFallback && !m.is(refereeing) && !m.is(merging) {
			out = append(out, i)
		}
	}
	return out
}

// fallback is the first subagent of role fallback, nil where there is none.
func (t *team) fallback() *member {
	for i := range t.members[:t.listed] {
		if t.members[i].role == aaif.SubagentFallback {
			return &t.members[i]
		}
	}
	return nil
}

// What members are for.
const (
	working    = "doing the work"
	refereeing = "the referee"
	merging    = "the synthesizer"
	judging    = "an evaluator"
	standingIn = "the fallback"
	receiving  = "receiving"
	answering  = "answering" // for a person who did not
)

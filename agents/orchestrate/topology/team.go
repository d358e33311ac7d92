package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/registry"
)

const at = "/agent/orchestration"

// pattern is the pattern of a block: one of package orchestrate's, or one of
// two more.
type pattern int

const (
	noTeam   pattern = iota // no team
	pipeline                //
	router                  //
	swarm                   // at once
	inTurn                  // a swarm of width one
	modelLed                //
)

// moment says when a condition holds, as far as its text shows.
type moment int

const (
	always moment = iota
	sometimes
	never
)

// member is an agent that the block names, under subagents or elsewhere.
type member struct {
	alias, ref, pointer string
	role                aaif.SubagentRole
	when                moment
	uses                []string // its functions: "step", "worker", "referee", …
}

// team is one document's block, parsed.
type team struct {
	doc      *aaif.Document
	def      *aaif.Definition
	o        *aaif.Orchestration // nil: none
	extras   orchestrate.Extras
	pattern  pattern
	members  []member       // subagents, then other members that the block names
	listed   int            // the number of subagents among members
	byName   map[string]int // indexes into members, by alias and by reference; the first one counts
	problems []aaif.Problem
	names    []*member // members whose references are mere names

	// unsure: the name of a step is not known, and may be meant for any of the
	// members.
	unsure bool
	// unread: some members' own documents are not available; they may say that
	// the members merge or judge.
	unread bool
}

func newTeam(doc *aaif.Document) *team {
	def := doc.Definition()
	if def == nil {
		return nil
	}
	t := &team{doc: doc, def: def, o: def.Agent.Orchestration, byName: make(map[string]int)}
	t.extras, _ = orchestrate.ExtrasOf(def) // extension reports its errors
	if t.o == nil {
		return t
	}
	for i, s := range t.o.Subagents {
		m := member{alias: s.Alias, ref: s.Ref, role: s.Role, pointer: fmt.Sprintf("%s/subagents/%d", at, i), when: momentOf(s.When)}
		m.alias = cmp.Or(m.alias, m.ref)
		t.join(m)
	}
	t.listed = len(t.members)
	t.pattern = t.patternOf()
	return t
}

// join adds a member, and indexes its names.
func (t *team) join(m member) *member {
	i := len(t.members)
	if j, taken := t.byName[m.alias]; !taken || t.members[j].alias != m.alias { // an alias precedes a ref
		t.byName[m.alias] = i
	}
	if _, taken := t.byName[m.ref]; !taken {
		t.byName[m.ref] = i
	}
	t.members = append(t.members, m)
	return &t.members[i]
}

// patternOf determines the pattern by the rules of docs/orchestration.md.
func (t *team) patternOf() pattern {
	switch o := t.o; {
	case len(o.Pipeline) > 0:
		return pipeline
	case len(o.Subagents) == 0:
		return noTeam
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

// momentOf recognises the conditions always and never, in all languages. A condition in plain words
// is never satisfied.
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
	return sometimes // package condition reports a condition that does not compile
}

// refs checks the references of the subagents.
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
		case namesNoSkill(m.ref):
			t.fail(m.pointer+"/ref", aaif.RuleID, "as in skill:go_review", "the reference names no skill")
		case !orchestrate.IsRef(m.ref) && !orchestrate.IsPath(m.ref):
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

// namesNoSkill reports whether a reference is skill: without a skill.
func namesNoSkill(ref string) bool {
	scheme, rest, ok := strings.Cut(ref, ":")
	return ok && strings.EqualFold(scheme, "skill") && registry.SkillOf(rest) == ""
}

// conditions reports conditions of subagents that never hold, and those that
// are never evaluated because their members judge or merge.
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

// nameless reports, in one problem, the references that are mere names: only a
// mesh can resolve them.
func (t *team) nameless(known func(*member) bool) {
	var names []string
	pointer := ""
	for _, m := range t.names {
		if known(m) {
			continue
		}
		if names = append(names, quote(m.ref)); pointer == "" {
			pointer = m.pointer + "/ref"
		}
	}
	switch n := len(names); {
	case n == 1:
		t.warn(pointer, RuleName, refForms, "only a mesh can resolve %s: an agent that is registered or runs under that name", names[0])
	case n > 1:
		t.warn(pointer, RuleName, refForms, "only a mesh can resolve %d of the references (%s): agents that are registered or run under these names", n, strings.Join(names[:min(n, 5)], ", ")+strings.Repeat(", …", min(1, max(0, n-5))))
	}
}

// treeLimit describes what ends loops that have no other end.
const treeLimit = "nothing ends it but the mesh's limits on a tree of tasks"

const refForms = "write an agent_id, a URI, an entity such as agent.reviewer, or skill: and a skill"

// isSelf reports whether a reference means the agent itself, as far as the
// document shows: its host may give it another entity id.
func (t *team) isSelf(ref string) bool {
	if t.def.AgentID != "" && strings.EqualFold(ref, t.def.AgentID) {
		return true
	}
	entity, err := aaif.EntityName(t.def.Agent.Name)
	return err == nil && ref == entity
}

// self reports an agent that is its own subagent.
func (t *team) self(m *member) {
	switch {
	case m.when != always:
	case t.pattern != modelLed && m.role != aaif.SubagentFallback:
		t.fail(m.pointer+"/ref", RuleLoop, "name another agent, or give it a when", "the agent is its own subagent, each time: it would never end")
	default:
		t.warn(m.pointer+"/ref", RuleLoop, treeLimit, "the agent is its own subagent")
	}
}

// find returns the member with a name: an alias or a reference. A reference
// that the block does not list is added to the members. For any other name find
// reports a problem and returns nil.
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

// lookup returns the member with a name; nil if there is none.
func (t *team) lookup(name string) *member {
	if i, ok := t.byName[name]; ok {
		return &t.members[i]
	}
	return nil
}

// aliases returns the names that suggestions are chosen from; none if there are
// very many.
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

// use records a function of a member.
func (m *member) use(what string) { m.uses = append(m.uses, what) }

func (m *member) is(what string) bool { return slices.Contains(m.uses, what) }

// workers returns the indexes of the subagents that do a swarm's or a router's
// work.
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

// fallback returns the first subagent of role fallback; nil if there is none.
func (t *team) fallback() *member {
	for i := range t.members[:t.listed] {
		if t.members[i].role == aaif.SubagentFallback {
			return &t.members[i]
		}
	}
	return nil
}

// The functions of members.
const (
	working    = "doing the work"
	refereeing = "the referee"
	merging    = "the synthesizer"
	judging    = "an evaluator"
	standingIn = "the fallback"
	receiving  = "receiving"
	answering  = "answering" // takes over from a person who did not answer
)

package orchestrate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
)

// Plan is a compiled orchestration block. It is never modified.
type Plan struct {
	Pattern Pattern
	Members []Participant // the document's subagents in order, then other members that it names

	Steps      []int // of a pipeline: indexes into Members
	Parallel   bool  // of a swarm: members work at the same time; else one after the other
	Evaluators []int // subagents of role evaluator
	Fallback   int   // index of the first subagent of role fallback; -1: none
	Referee    int   // -1: none

	// Synthesizer is the member that the document names for merging; -1: none.
	// A member whose own definition has the role synthesizer is found at run
	// time, by the directory.
	Synthesizer int

	// ByModel: the agent's model chooses the member of a router, because there
	// is one to choose, and no subagent has a condition.
	ByModel bool
	// OwnModel: the document has a model. It merges and judges if no member
	// does.
	OwnModel bool

	Consensus *aaif.Consensus // nil: none
	Extras    Extras
}

// Participant is a member of a team as the document names it.
type Participant struct {
	Alias string // the alias in the document, or the ref if there is none
	Ref   string
	Role  aaif.SubagentRole
	// When is the condition for the member to take part; nil: always.
	When *condition.Program
	// Input computes the member's input; nil: the pattern's default.
	Input *condition.Query
	// PassMemoryKeys are the memories that are passed to the member
	// (subagents[].pass_memory_keys).
	PassMemoryKeys []string
	Extras         StepExtras
}

// bySkill reports whether the document names a skill instead of an agent.
func (p *Participant) bySkill() bool { return strings.HasPrefix(p.Ref, "skill:") }

// Compile makes a plan from a definition. It returns nil if the definition has no team: no
// orchestration block, or one without subagents and pipeline. model reports whether the agent has
// its own model, see [HasModel]. The errors are the reasons why the team cannot work, with their
// JSON pointers.
func Compile(def *aaif.Definition, model bool) (*Plan, error) {
	o := def.Agent.Orchestration
	if o == nil || len(o.Subagents) == 0 && len(o.Pipeline) == 0 {
		return nil, nil
	}
	extras, err := ExtrasOf(def)
	if err != nil {
		return nil, err
	}
	p := &Plan{Fallback: -1, Referee: -1, Synthesizer: -1, Consensus: o.Consensus, Extras: extras, OwnModel: model}
	bad := []error{p.members(o)}
	p.choosePattern(o)
	bad = append(bad, p.named(o))
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	p.ByModel = p.Pattern == Router && model && len(p.Workers()) > 0 && !Conditional(o)
	return p, nil
}

// Conditional reports whether a subagent has a condition, even one that is not
// evaluated because the subagent is the fallback or a judge.
func Conditional(o *aaif.Orchestration) bool {
	return slices.ContainsFunc(o.Subagents, func(s aaif.Subagent) bool { return s.When != nil })
}

// HasModel reports whether a document names a model, even if only as a fallback (AAIF, LLM
// Provider Routing, does not require a provider).
func HasModel(def *aaif.Definition) bool {
	m := def.Agent.Model
	return m != nil && (m.Provider != "" || m.BaseURL != "" || len(m.Fallbacks) > 0)
}

const at = "/agent/orchestration"

// members adds the document's subagents.
func (p *Plan) members(o *aaif.Orchestration) error {
	var bad []error
	for i, s := range o.Subagents {
		pointer := fmt.Sprintf("%s/subagents/%d", at, i)
		m := Participant{Alias: s.Alias, Ref: s.Ref, Role: s.Role, PassMemoryKeys: s.PassMemoryKeys}
		m.Alias = cmp.Or(m.Alias, s.Ref)
		if slices.ContainsFunc(p.Members, func(other Participant) bool { return other.Alias == m.Alias }) {
			bad = append(bad, fmt.Errorf("%s/alias: there are two subagents %q", pointer, m.Alias))
		}
		if s.When != nil {
			when, err := condition.Compile(*s.When, condition.Options{})
			if err != nil {
				bad = append(bad, fmt.Errorf("%s/when: %w", pointer, err))
			}
			m.When = when
		}
		bad = append(bad, p.refine(&m))
		switch s.Role {
		case aaif.SubagentFallback:
			if p.Fallback < 0 {
				p.Fallback = i
			}
		case aaif.SubagentEvaluator:
			p.Evaluators = append(p.Evaluators, i)
		}
		p.Members = append(p.Members, m)
	}
	for name := range p.Extras.Steps {
		if !slices.ContainsFunc(p.Members, func(m Participant) bool { return m.Alias == name }) && !slices.Contains(o.Pipeline, name) {
			bad = append(bad, fmt.Errorf("%s: no subagent is called so", stepPointer(name)))
		}
	}
	return errors.Join(bad...)
}

// refine applies the extension's settings to a member.
func (p *Plan) refine(m *Participant) error {
	m.Extras = p.Extras.Steps[m.Alias]
	if in := m.Extras.Input; in != nil {
		q, err := condition.CompileQuery(*in, condition.Options{})
		if err != nil {
			return fmt.Errorf("%s/input: %w", stepPointer(m.Alias), err)
		}
		m.Input = q
	}
	return nil
}

// choosePattern determines the pattern, in the order of rules in
// docs/orchestration.md.
func (p *Plan) choosePattern(o *aaif.Orchestration) {
	switch {
	case len(o.Pipeline) > 0:
		p.Pattern = Pipeline
	case o.Role == aaif.RoleRouter:
		p.Pattern = Router
	case o.ParallelExecution != nil && *o.ParallelExecution:
		p.Pattern, p.Parallel = Swarm, true
	case p.OwnModel:
		p.Pattern = ModelLed
	default:
		p.Pattern = Swarm
	}
}

// named resolves the members that the block names by alias, agent_id or entity.
func (p *Plan) named(o *aaif.Orchestration) error {
	var bad []error
	find := func(pointer, name string) int {
		i, err := p.find(name)
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", pointer, err))
		}
		return i
	}
	for i, name := range o.Pipeline {
		p.Steps = append(p.Steps, find(fmt.Sprintf("%s/pipeline/%d", at, i), name))
	}
	if c := o.Consensus; c != nil && c.RefereeAgent != "" {
		p.Referee = find(at+"/consensus/referee_agent", c.RefereeAgent)
	}
	switch {
	case p.Extras.Synthesizer != "":
		p.Synthesizer = find("/"+Extension+"/orchestration/synthesizer", p.Extras.Synthesizer)
	default:
		p.Synthesizer = slices.IndexFunc(p.Members, func(m Participant) bool { return m.Alias == string(aaif.RoleSynthesizer) })
	}
	if p.Consensus != nil && p.Consensus.Strategy == aaif.ConsensusReferee && p.Referee < 0 {
		bad = append(bad, fmt.Errorf("%s/consensus: the strategy referee needs a referee_agent", at))
	}
	return errors.Join(bad...)
}

// find returns the index of the member with an alias or a subagent's ref. A
// name that is no subagent becomes a member if it is a valid reference.
func (p *Plan) find(name string) (int, error) {
	if i := p.member(name); i >= 0 {
		return i, nil
	}
	if !IsRef(name) {
		return -1, fmt.Errorf("no subagent is called %q, and it is neither an agent_id, a URI nor an entity", name)
	}
	m := Participant{Alias: name, Ref: name}
	err := p.refine(&m)
	p.Members = append(p.Members, m)
	return len(p.Members) - 1, err
}

// member returns the index of the first member that a name stands for; -1: there
// is none.
func (p *Plan) member(name string) int {
	for i := range p.Members {
		if p.means(i, name) {
			return i
		}
	}
	return -1
}

// means reports whether a name stands for a member: it is the member's alias, or its
// ref and no other member's alias.
func (p *Plan) means(member int, name string) bool {
	m := &p.Members[member]
	return m.Alias == name || m.Ref == name && !slices.ContainsFunc(p.Members, func(m Participant) bool { return m.Alias == name })
}

// IsRef reports whether a text has a form that a [Directory] may resolve: an
// AAIF agent_id (a UUID), a URI, or an entity id.
func IsRef(s string) bool {
	return IsEntity(s) || aaif.IsUUID(s) || strings.Contains(s, ":") && !strings.HasPrefix(s, ":")
}

// NeedsMind reports whether the team uses the agent's own model.
func (p *Plan) NeedsMind() bool {
	switch p.Pattern {
	case ModelLed:
		return true
	case Router:
		return p.ByModel
	case Swarm:
		return p.OwnModel && p.swarmNeedsMind()
	}
	return false
}

// OwnTurns reports whether the agent's own model may take turns in the team's work, beyond
// questions about scores or routes: in a team that it leads, and where it merges the outputs
// of a swarm.
func (p *Plan) OwnTurns() bool {
	merges := p.Pattern == Swarm && p.OwnModel && p.Synthesizer < 0
	return p.Pattern == ModelLed || merges && (p.Consensus == nil || p.Consensus.Strategy == "" || p.Extras.Tie == TieMerge)
}

// swarmNeedsMind reports whether the agent's own model merges or scores the
// outputs of a swarm, because no member does.
func (p *Plan) swarmNeedsMind() bool {
	merges := p.Synthesizer < 0
	if p.Consensus == nil || p.Consensus.Strategy == "" {
		return merges
	}
	scores := p.Consensus.Strategy == aaif.ConsensusBestOfN && len(p.Evaluators) == 0
	return scores || merges && p.Extras.Tie == TieMerge
}

// Workers returns the members of a swarm or a router that do its work: all
// except judges, the synthesizer and the fallback.
func (p *Plan) Workers() []int {
	var out []int
	for i, m := range p.Members {
		if i != p.Referee && i != p.Synthesizer && m.Role != aaif.SubagentEvaluator && m.Role != aaif.SubagentFallback {
			out = append(out, i)
		}
	}
	return out
}

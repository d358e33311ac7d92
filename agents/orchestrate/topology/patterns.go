package topology

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
)

func (t *team) pipeline() {
	if t.parallel() {
		t.warn(at+"/parallel_execution", aaif.RuleIgnoredField, "delete one of the two; a step may be a swarm of its own", "a pipeline is done one step after the other, parallel_execution or not")
	}
	if t.o.Role == aaif.RoleRouter {
		t.warn(at+"/role", aaif.RuleIgnoredField, "delete the pipeline, or write another role", "the pipeline wins over the role router: every task takes all steps")
	}
	taken := 0
	for i, name := range t.o.Pipeline {
		pointer := fmt.Sprintf("%s/pipeline/%d", at, i)
		m := t.find(pointer, name, aaif.SeverityError)
		if m == nil {
			taken, t.unsure = taken+1, true // the problem was reported already
			continue
		}
		m.use(working)
		if m.when != never {
			taken++
		}
		if m.pointer == pointer && t.isSelf(m.ref) {
			t.fail(pointer, RuleLoop, "name another agent", "the agent is a step of its own pipeline: it would never end")
		}
	}
	if taken == 0 {
		t.fail(at+"/pipeline", RuleTeam, "correct the conditions of the steps", "no step is ever done: the conditions never hold%s", t.plainConditions())
	}
	t.fallbacks()
}

func (t *team) router() {
	if t.parallel() {
		t.warn(at+"/parallel_execution", aaif.RuleIgnoredField, "delete it, or write the role orchestrator", "a router asks one subagent, parallel_execution or not")
	}
	workers := t.workers()
	byModel := t.hasModel() && len(workers) > 0 && !orchestrate.Conditional(t.o)
	var sure *member // the first member that takes every task
	taken := 0
	for _, i := range workers {
		m := &t.members[i]
		m.use(working)
		if m.when != never {
			taken++
		}
		switch {
		case byModel:
		case sure != nil && m.when != never:
			t.warn(m.pointer, RuleUnreachable, "put it before "+quote(sure.alias)+", or give that one a condition", "%s is never chosen: %s before it takes every task", quote(m.alias), quote(sure.alias))
		case sure == nil && m.when == always:
			sure = m
		}
	}
	fallback := t.fallback()
	switch {
	case fallback != nil && sure != nil && !byModel && !t.fallsBack(sure.alias):
		t.warn(fallback.pointer, RuleUnreachable, "give "+quote(sure.alias)+" a condition, or delete the fallback", "the fallback is never chosen: %s takes every task", quote(sure.alias))
	case fallback != nil:
	case taken == 0 && len(workers) > 0:
		t.fail(at+"/subagents", RuleTeam, "correct the conditions, or give one subagent the role fallback", "no condition ever holds: every task is refused with E_NO_ROUTE%s", t.plainConditions())
	case len(workers) == 0:
		t.fail(at+"/subagents", RuleTeam, "give one of them another role", "there is no subagent that the router could choose")
	case sure == nil && !byModel:
		t.warn(at+"/subagents", RuleTeam, "give one subagent the role fallback, or write its when as {\"lang\": \"always\"} and put it last", "a task for which no condition holds is refused with E_NO_ROUTE: there is no fallback")
	}
	if fallback != nil {
		fallback.use(standingIn)
	}
	t.fallbacks()
}

// plainConditions names the members whose conditions are in plain words, which are never evaluated, for a
// team in which no condition ever holds; "" if there are none.
func (t *team) plainConditions() string {
	const named = 5
	var names []string
	for i := range t.members[:t.listed] {
		if c := t.o.Subagents[i].When; c != nil && c.IsString() {
			names = append(names, quote(t.members[i].alias))
		}
	}
	switch n := len(names); {
	case n == 0:
		return ""
	case n > named:
		return fmt.Sprintf("; those of %s and %d others are words, which are not evaluated", strings.Join(names[:named], ", "), n-named)
	case n == 1:
		return fmt.Sprintf("; that of %s is words, which are not evaluated", names[0])
	}
	return fmt.Sprintf("; those of %s are words, which are not evaluated", strings.Join(names, ", "))
}

func (t *team) swarm() {
	workers := t.workers()
	taken := 0
	for _, i := range workers {
		m := &t.members[i]
		m.use(working)
		if m.when != never {
			taken++
		}
	}
	if fallback := t.fallback(); fallback != nil && !slices.ContainsFunc(workers, func(i int) bool { return t.members[i].when == always }) {
		fallback.use(standingIn) // used if no condition holds
	}
	idle := "" // the problem of members that never take part
	if n := len(workers) - taken; n > 0 {
		idle = fmt.Sprintf(": the conditions of %d more never hold", n)
	}
	switch {
	case len(workers) == 0:
		t.fail(at+"/subagents", RuleTeam, "name one that is neither evaluator, fallback, referee nor synthesizer", "no member of the swarm does the work")
	case taken == 0 && t.fallback() == nil:
		t.fail(at+"/subagents", RuleTeam, "correct the conditions", "no member ever takes part: no condition ever holds%s", t.plainConditions())
	case taken == 0: // the fallback is the whole swarm
	case t.extras.MinResults > taken:
		t.fail(extension("min_results"), RuleTeam, fmt.Sprintf("write at most %d", taken), "%d results can never come of %d subagents%s", t.extras.MinResults, taken, idle)
	}
	c := t.o.Consensus
	strategy := aaif.ConsensusStrategy("")
	if c != nil {
		strategy = c.Strategy
	}
	switch strategy {
	case "":
		if !t.merges() && !t.unread && !t.hasModel() && len(workers) > 1 {
			t.warn(at, RuleTeam, `give one subagent the alias synthesizer, name one in x-aeemesh, or choose a consensus`,
				"the answers are not merged: the result is their list")
		}
	case aaif.ConsensusMajorityVote:
		votes := c.MinVotes.Int64()
		switch {
		case taken > 0 && votes > int64(taken):
			t.fail(at+"/consensus/min_votes", RuleTeam, fmt.Sprintf("write at most %d", taken), "%d votes can never agree: %d subagents vote%s", votes, taken, strings.Replace(idle, ":", ",", 1))
		case len(workers) == 1:
			t.warn(at+"/consensus", RuleTeam, "name more subagents", "one subagent alone has no majority to find")
		}
	case aaif.ConsensusBestOfN:
		judges := 0
		for i := range t.members[:t.listed] {
			if t.members[i].role == aaif.SubagentEvaluator {
				t.members[i].use(judging)
				judges++
			}
		}
		if judges == 0 && !t.hasModel() && t.unread {
			t.warn(at+"/consensus", RuleTeam, "give one subagent the role evaluator, or the agent a model", "best_of_n needs an evaluator: the document of a subagent may have that role")
		} else if judges == 0 && !t.hasModel() {
			t.fail(at+"/consensus", RuleTeam, "give one subagent the role evaluator, or the agent a model", "best_of_n needs an evaluator")
		}
	}
	t.fallbacks()
}

func (t *team) modelLed() {
	tools := make(map[string]bool)
	for i := range t.def.Agent.Tools {
		tools[t.def.Agent.Tools[i].Name] = true
	}
	workers := t.workers()
	aliases := make([]string, len(workers))
	for n, i := range workers {
		aliases[n] = t.members[i].alias
	}
	names := orchestrate.ToolNames(aliases)
	for n, i := range workers {
		m := &t.members[i]
		m.use(working)
		switch name := names[n]; {
		case tools[name]:
			t.warn(m.pointer+"/alias", aaif.RuleReference, "choose another alias", "a tool is called %s too: the model cannot tell them apart", quote(name))
		case name != orchestrate.ToolNames(aliases[n : n+1])[0]:
			t.warn(m.pointer+"/alias", aaif.RuleReference, "choose another alias", "another subagent has the same name as a tool: the model calls %s by the name %s", quote(m.alias), quote(name))
		}
	}
}

func (t *team) parallel() bool { return t.o.ParallelExecution != nil && *t.o.ParallelExecution }

// named marks the referee and the synthesizer, which do not take part in the
// work.
func (t *team) named() {
	if c := t.o.Consensus; c != nil && c.RefereeAgent != "" {
		if m := t.find(at+"/consensus/referee_agent", c.RefereeAgent, aaif.SeverityError); m != nil {
			m.use(refereeing)
			if m.pointer == at+"/consensus/referee_agent" && t.isSelf(m.ref) {
				t.fail(m.pointer, RuleLoop, "name another agent", "the agent is its own referee: it would never end")
			}
		}
	}
	name := t.extras.Synthesizer
	if name != "" {
		if m := t.find(extension("synthesizer"), name, aaif.SeverityError); m != nil {
			m.use(merging)
		}
		return
	}
	for i := range t.members[:t.listed] {
		if t.members[i].alias == string(aaif.RoleSynthesizer) {
			t.members[i].use(merging)
			return
		}
	}
}

// merges reports whether a synthesizer is named.
func (t *team) merges() bool {
	return slices.ContainsFunc(t.members, func(m member) bool { return m.is(merging) })
}

// fallbacks checks the extension's on_error: fallback.
func (t *team) fallbacks() {
	fallback := t.fallback()
	for i := range t.members {
		m := &t.members[i]
		if t.extras.Steps[m.alias].OnError != orchestrate.OnErrorFallback {
			continue
		}
		switch {
		case fallback == nil:
			t.fail(extension("steps", m.alias, "on_error"), RuleTeam, "give one subagent the role fallback", "there is no fallback for %s", quote(m.alias))
		case fallback == m:
			t.warn(extension("steps", m.alias, "on_error"), aaif.RuleIgnoredField, "delete it", "%s is the fallback itself", quote(m.alias))
		default:
			fallback.use(standingIn)
		}
	}
}

// fallsBack reports whether the fallback does a member's work if the member
// fails.
func (t *team) fallsBack(alias string) bool {
	return t.extras.Steps[alias].OnError == orchestrate.OnErrorFallback
}

// consensus checks the members of the block's consensus.
func (t *team) consensus() {
	c := t.o.Consensus
	if c == nil {
		return
	}
	const here = at + "/consensus"
	switch t.pattern {
	case swarm, inTurn:
	default:
		t.warn(here, aaif.RuleIgnoredField, "set parallel_execution to true, or delete it", "only a swarm has answers that must agree")
	}
	switch {
	case c.Strategy == aaif.ConsensusReferee && c.RefereeAgent == "":
		t.fail(here, aaif.RuleIncomplete, "name one in referee_agent", "the strategy referee needs a referee")
	case c.Strategy != aaif.ConsensusReferee && c.RefereeAgent != "":
		t.warn(here+"/referee_agent", aaif.RuleIgnoredField, `set strategy to "referee", or delete it`, "no other strategy has a referee")
	}
	if c.MinVotes.IsSet() && c.Strategy != aaif.ConsensusMajorityVote {
		t.warn(here+"/min_votes", aaif.RuleIgnoredField, `set strategy to "majority_vote", or delete it`, "no other strategy counts votes")
	}
}

// idle reports subagents that are never called.
func (t *team) idle() {
	if t.pattern == noTeam || t.unsure {
		return
	}
	for i := range t.members[:t.listed] {
		m := &t.members[i]
		if len(m.uses) > 0 || m.when == never && t.pattern != pipeline {
			continue
		}
		switch {
		case m.role == aaif.SubagentFallback:
			t.warn(m.pointer, RuleUnreachable, "set on_error: fallback for a step, in x-aeemesh", "nothing ever falls back to %s", quote(m.alias))
		case m.role == aaif.SubagentEvaluator:
			t.warn(m.pointer, RuleUnreachable, "set the consensus best_of_n, or write another role", "no answers are ever scored: %s is never called", quote(m.alias))
		default:
			t.warn(m.pointer, RuleUnreachable, "give it something to do, or delete it", "%s is never called", quote(m.alias))
		}
	}
}

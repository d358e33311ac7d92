package topology

import (
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// platforms compares the definitions with the platform manifests among the
// documents, and reports condition languages and patterns that no platform
// supports.
func (g *group) platforms() {
	var names []string
	var offers []*aaif.OrchestrationCapabilities
	for i := range g.sources {
		m := g.sources[i].Doc.Manifest()
		if m == nil {
			continue
		}
		names = append(names, g.sources[i].Name)
		o := &aaif.OrchestrationCapabilities{}
		if c := m.Platform.Capabilities; c != nil && c.Orchestration != nil {
			o = c.Orchestration
		}
		offers = append(offers, o)
	}
	if len(offers) == 0 {
		return
	}
	whose := strings.Join(names, ", ")
	lacks := func(has func(*aaif.OrchestrationCapabilities) *bool) bool {
		return !slices.ContainsFunc(offers, func(o *aaif.OrchestrationCapabilities) bool { b := has(o); return b != nil && *b })
	}
	for _, t := range g.teams {
		if t == nil {
			continue
		}
		t.languages(offers, whose)
		if t.o == nil {
			continue
		}
		if (t.pattern == swarm) && lacks(func(o *aaif.OrchestrationCapabilities) *bool { return o.Parallel }) {
			t.fail(at+"/parallel_execution", aaif.RuleCapability, "", "no worker runs subagents in parallel: not those of %s", whose)
		}
		if t.pattern == pipeline && lacks(func(o *aaif.OrchestrationCapabilities) *bool { return o.Pipeline }) {
			t.fail(at+"/pipeline", aaif.RuleCapability, "", "no worker runs pipelines: not those of %s", whose)
		}
		if t.pattern == router && lacks(func(o *aaif.OrchestrationCapabilities) *bool { return o.DynamicRouting }) {
			t.fail(at+"/role", aaif.RuleCapability, "", "no worker routes: not those of %s", whose)
		}
		if t.pattern != noTeam && t.o.Consensus != nil && lacks(func(o *aaif.OrchestrationCapabilities) *bool { return o.Consensus }) {
			t.fail(at+"/consensus", aaif.RuleCapability, "", "no worker finds a consensus: not those of %s", whose)
		}
		if len(t.o.Handoff) > 0 && lacks(func(o *aaif.OrchestrationCapabilities) *bool { return o.Handoff }) {
			t.fail(at+"/handoff", aaif.RuleCapability, "", "no worker delegates runs: not those of %s", whose)
		}
	}
}

// languages reports conditions that no worker can evaluate.
func (t *team) languages(offers []*aaif.OrchestrationCapabilities, whose string) {
	for pointer, c := range t.def.Conditions() {
		if c.IsString() || c.Lang == aaif.LangAlways || c.Lang == aaif.LangNever {
			continue
		}
		if !slices.ContainsFunc(offers, func(o *aaif.OrchestrationCapabilities) bool { return slices.Contains(o.ConditionLanguages, c.Lang) }) {
			t.fail(pointer+"/lang", RuleLanguage, "the condition would never be satisfied", "no worker evaluates %s: not those of %s", c.Lang, whose)
		}
	}
}

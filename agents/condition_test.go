package agents_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/agents/orchestrate/topology"
)

// Conditions are compiled before an agent is hosted, and their languages
// negotiated. One that does not compile keeps an agent of a strict level out; one
// in words is warned of.
func TestConditionsAreCheckedBeforeHosting(t *testing.T) {
	t.Parallel()
	const good, bad = `{"lang":"cel","expr":"input.a == 1"}`, `{"lang":"cel","expr":"input.a =="}`
	agent := func(level, when string) *aaif.Document {
		return doc(t, echoModel+`,"compliance":{"pii_handling":"none","safety_level":"`+level+`"},"required_capabilities":["condition.structured"],"orchestration":{"handoff":[{"condition":`+when+`,"target_agent":"x"}]}`)
	}
	at := "/agent/orchestration/handoff/0/condition"
	find := func(a *agents.Agent, rule aaif.Rule) *aaif.Problem {
		i := slices.IndexFunc(a.Notices, func(p aaif.Problem) bool { return p.Rule == rule })
		if i < 0 {
			return nil
		}
		return &a.Notices[i]
	}
	a := newAgent(t, agent("strict", good), agents.Options{})
	if p := find(a, condition.RuleCondition); p != nil || !slices.Contains(a.Negotiation.Languages, aaif.LangCEL) {
		t.Errorf("%v, %+v", p, a.Negotiation)
	}
	a = newAgent(t, agent("standard", bad), agents.Options{})
	if p := find(a, condition.RuleCondition); p == nil || p.Pointer != at+"/expr" || p.Severity != aaif.SeverityWarning {
		t.Errorf("%v", a.Notices)
	}
	a = newAgent(t, agent("standard", `"when it is about money"`), agents.Options{})
	if p := find(a, topology.RuleUnreachable); p == nil || p.Pointer != at || !strings.Contains(p.Message, "words are never satisfied") {
		t.Errorf("%v", a.Notices)
	}
	for _, level := range []string{"strict", "regulated"} {
		_, err := agents.New(agent(level, bad), agents.Options{})
		if err == nil || !strings.Contains(err.Error(), at+"/expr") {
			t.Errorf("%s: %v", level, err)
		}
	}
}

package agents

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
)

// Rules of notices, beside those of package aaif.
const (
	RuleLimit     aaif.Rule = "limit"     // a limit that was lowered
	RuleDelegated aaif.Rule = "delegated" // left to the program or handler
	RuleModelKey  aaif.Rule = "model-key" // where the model's API key goes, or does not
	RuleTool      aaif.Rule = "tool"      // a tool that cannot be used here
	RuleEncrypt   aaif.Rule = "encrypt"   // what is encrypted where it is stored
	RuleLane      aaif.Rule = "lane"      // what a node without the durable lane does otherwise
	RuleTelemetry aaif.Rule = "telemetry" // what is reported otherwise than the document says
)

// delegated are the parts of a definition that a program or a handler has to
// keep by itself.
var delegated = []struct {
	pointer string
	used    func(*aaif.Agent) bool
	message string
}{
	{"/agent/constraints", func(a *aaif.Agent) bool { return len(a.Constraints) > 0 }, "what does the agent's work has to keep the constraints; this runtime cannot"},
	{"/agent/model", func(a *aaif.Agent) bool { return a.Model != nil }, "the model is not used: something else does the agent's work"},
	{"/agent/tools", func(a *aaif.Agent) bool { return len(a.Tools) > 0 }, "the tools are not offered: something else does the agent's work"},
	{"/agent/io/format", func(a *aaif.Agent) bool { return a.IO != nil && a.IO.Format == aaif.IOMarkdown }, "what does the agent's work has to answer in Markdown; this runtime cannot"},
	{"/agent/orchestration", leads, "the team is not led by this runtime: what does the agent's work has to call the others itself"},
	{"/agent/orchestration/max_iterations", func(a *aaif.Agent) bool { return a.Orchestration != nil && a.Orchestration.MaxIterations.IsSet() }, "what does the agent's work has to count its iterations; this runtime cannot"},
}

// leads is true of an agent that has others do its work, or hands it over.
func leads(a *aaif.Agent) bool {
	o := a.Orchestration
	return o != nil && (len(o.Subagents) > 0 || len(o.Pipeline) > 0 || len(o.Handoff) > 0)
}

// byModel reports whether a model does the agent's work, or a team.
func (o *Options) byModel() bool { return o.Handler == nil && o.Program == nil }

// delegates are the parts of a definition that who does its work has to keep:
// the operator's program or handler, or the members of its team.
func delegates(def *aaif.Definition, plan *orchestrate.Plan, opts Options) (out []aaif.Problem) {
	note := func(pointer string, otherwise aaif.Severity, format string, args ...any) {
		out = append(out, aaif.Unhonoured(pointer, RuleDelegated, otherwise, fmt.Sprintf(format, args...)))
	}
	if !opts.byModel() {
		for _, d := range delegated {
			if d.used(&def.Agent) {
				note(d.pointer, aaif.SeverityNote, "%s", d.message)
			}
		}
		return out
	}
	if plan == nil || plan.Pattern == orchestrate.ModelLed {
		return nil
	}
	if plan.OwnModel && def.Agent.Model != nil && !plan.NeedsMind() {
		note("/agent/model", aaif.SeverityNote, "the model is not used: the agent's team does the work (%s)", plan.Pattern)
	}
	if len(def.Agent.Tools) > 0 {
		note("/agent/tools", aaif.SeverityWarning, "the tools are not offered: the agent's team does the work (%s)", plan.Pattern)
	}
	if len(def.Agent.Constraints) > 0 {
		note("/agent/constraints", aaif.SeverityWarning, "the members of the team do the work (%s), and each is held to constraints of its own", plan.Pattern)
	}
	return out
}

// withoutEffect are the warnings about a document that say what of it has no
// effect: conditions in words, of which a runtime SHOULD warn (AAIF, Condition
// Expressions), fields that others overrule or need, and a later version of AAIF.
// What lies within a part of which more is said already is left out, and so are
// conditions of which the team's check says what comes of them.
func withoutEffect(doc *aaif.Document, said, team []aaif.Problem) []aaif.Problem {
	var out []aaif.Problem
	for _, p := range doc.Lint() {
		switch p.Rule {
		case aaif.RuleStringCondition:
			if slices.ContainsFunc(team, func(s aaif.Problem) bool { return p.Pointer == s.Pointer }) {
				continue
			}
		case aaif.RuleIgnoredField, aaif.RuleIncomplete, aaif.RuleVersion:
			if slices.ContainsFunc(said, func(s aaif.Problem) bool {
				return p.Pointer == s.Pointer || strings.HasPrefix(p.Pointer, s.Pointer+"/")
			}) {
				continue
			}
		default:
			continue
		}
		out = append(out, p)
	}
	return out
}

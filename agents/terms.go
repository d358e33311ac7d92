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
	RuleLimit     aaif.Rule = "limit"     // a limit was lowered
	RuleDelegated aaif.Rule = "delegated" // a field is left to the program or handler
	RuleModelKey  aaif.Rule = "model-key" // to which endpoint the model's API key is sent, or that it is not sent
	RuleTool      aaif.Rule = "tool"      // a tool cannot be used here
	RuleEncrypt   aaif.Rule = "encrypt"   // what is encrypted in storage
	RuleLane      aaif.Rule = "lane"      // how a node without the durable lane differs from the document
	RuleUnusable  aaif.Rule = "unusable"  // no configuration makes the field usable
	RuleTelemetry aaif.Rule = "telemetry" // how telemetry differs from the document
)

// delegated are the fields of a definition that a program or a handler must
// honour itself.
var delegated = []struct {
	pointer string
	used    func(*aaif.Agent) bool
	message string
}{
	{"/agent/constraints", func(a *aaif.Agent) bool { return len(a.Constraints) > 0 }, "the program or handler has to keep the constraints; this runtime cannot"},
	{"/agent/model", func(a *aaif.Agent) bool { return a.Model != nil }, "the model is not used: something else does the agent's work"},
	{"/agent/instructions", instructed, "the instructions are not used: something else does the agent's work"},
	{"/agent/tools", func(a *aaif.Agent) bool { return len(a.Tools) > 0 }, "the tools are not offered: something else does the agent's work"},
	{"/agent/io/format", inMarkdown, "the program or handler has to answer in Markdown; this runtime cannot"},
	{"/agent/orchestration", leads, "the team is not led by this runtime: the program or handler has to call the others itself"},
	{"/agent/orchestration/max_iterations", func(a *aaif.Agent) bool { return a.Orchestration != nil && a.Orchestration.MaxIterations.IsSet() }, "the program or handler has to count its iterations; this runtime cannot"},
}

// overstayed are the fields of a definition that a program must honour itself:
// it is not told that a task has ended, and keeps its place and its slot only
// for [program.Config].Linger after that.
var overstayed = []struct {
	pointer string
	used    func(*aaif.Agent) bool
	message string
}{
	{"/agent/runtime/timeout_seconds", func(a *aaif.Agent) bool { return a.Runtime != nil && a.Runtime.TimeoutSeconds.IsSet() }, "the program has to stop its work by itself: the sender is answered in time, and this runtime cannot abort one of the program's tasks"},
	{"/agent/runtime/concurrency", func(a *aaif.Agent) bool { return a.Runtime != nil && a.Runtime.Concurrency.IsSet() }, "the program has to stop its work on tasks that have ended: some seconds later this runtime begins others"},
}

func instructed(a *aaif.Agent) bool { return a.Instructions != "" }

func inMarkdown(a *aaif.Agent) bool { return a.IO != nil && a.IO.Format == aaif.IOMarkdown }

// leads reports whether an agent has a team or delegates its work.
func leads(a *aaif.Agent) bool {
	o := a.Orchestration
	return o != nil && (len(o.Subagents) > 0 || len(o.Pipeline) > 0 || len(o.Handoff) > 0)
}

// byModel reports whether a model or a team does the agent's work, as opposed
// to a handler or program.
func (o *Options) byModel() bool { return o.Handler == nil && o.Program == nil }

// delegates returns a notice for each field that the runtime leaves to the
// operator's program or handler, or to the members of the team.
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
		for _, d := range overstayed {
			if opts.Program != nil && d.used(&def.Agent) {
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
	if instructed(&def.Agent) && !plan.NeedsMind() {
		note("/agent/instructions", aaif.SeverityNote, "the instructions are not used: the agent's team does the work (%s)", plan.Pattern)
	}
	if inMarkdown(&def.Agent) && !plan.NeedsMind() {
		note("/agent/io/format", aaif.SeverityNote, "the members of the team have to answer in Markdown (%s); this runtime cannot", plan.Pattern)
	}
	if len(def.Agent.Tools) > 0 {
		note("/agent/tools", aaif.SeverityWarning, "the tools are not offered: the agent's team does the work (%s)", plan.Pattern)
	}
	if len(def.Agent.Constraints) > 0 {
		note("/agent/constraints", aaif.SeverityWarning, "the members of the team do the work (%s), and each is held to constraints of its own", plan.Pattern)
	}
	return out
}

// withoutEffect returns the warnings about fields that have no effect:
// conditions in words, of which a runtime SHOULD warn (AAIF, Condition
// Expressions), fields that are overruled or that need another field, and
// members of a later AAIF version. It skips fields that said already covers,
// and conditions that the team's check covers.
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

package agents

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/agents/orchestrate/topology"
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

// terms holds the definition against what this runtime does, and decides
// whether it may be hosted (AAIF, Capability Negotiation and Compliance
// Controls).
//
// What a runtime MUST do and this one does not is a notice of severity error.
// At safety levels strict and regulated it refuses the agent: these are the
// levels at which nothing may be left out. Approval by a person is asked for
// before tools write; since nobody can approve yet, such an agent gets no tools,
// and is refused if it has any.
func (a *Agent) terms(doc *aaif.Document, opts Options) error {
	def := doc.Definition()
	supported := Honours(opts.Offer)
	byModel := opts.Handler == nil && opts.Program == nil
	var elsewhere []aaif.Problem
	if !byModel {
		for _, d := range delegated {
			supported = supported.With(d.pointer)
			if d.used(&def.Agent) {
				elsewhere = append(elsewhere, aaif.Problem{Pointer: d.pointer, Rule: RuleDelegated, Severity: aaif.SeverityWarning, Message: d.message})
			}
		}
		a.Notices = append(a.Notices, elsewhere...)
	}
	var bad []error
	if def.Status == aaif.StatusDeprecated { // AAIF, Root and Identity Fields: a runtime MAY refuse it
		a.Notices = append(a.Notices, aaif.Problem{Pointer: "/status", Rule: aaif.RuleDeprecated, Severity: aaif.SeverityWarning, Message: "the agent is retired"})
		if !opts.Deprecated {
			bad = append(bad, errors.New("/status: the agent is deprecated; it is hosted only if the operator says so (worker --allow-deprecated)"))
		}
	}
	lacking := slices.Concat(aaif.NotHonoured(doc, supported), a.encryption(def, opts), condition.Check(doc))
	a.Notices = append(a.Notices, withoutEffect(doc, slices.Concat(elsewhere, lacking))...)
	a.Notices = append(a.Notices, lacking...)
	if byModel {
		for _, p := range topology.Check(doc) { // a team that cannot work is not hosted
			a.Notices = append(a.Notices, p)
			if p.Severity == aaif.SeverityError {
				bad = append(bad, errors.New(p.String()))
			}
		}
	}
	a.negotiate = func(durable bool) aaif.Negotiation {
		have := Offers(opts, durable)
		if a.traceable {
			have.Capabilities[aaif.CapTelemetryOTel] = struct{}{}
		}
		return def.Negotiate(have)
	}
	a.Negotiation = a.negotiate(true)
	a.Notices = append(a.Notices, a.Negotiation.Problems()...)

	if err := a.Negotiation.Err(); err != nil {
		bad = append(bad, err)
	}
	if refuses(a.Negotiation.Safety) {
		bad = append(bad, a.refusals(lacking)...)
	}
	if byModel && needsApproval(def) && len(def.Agent.Tools) > 0 {
		bad = append(bad, errors.New("/agent/compliance/human_in_the_loop: nobody can approve tool calls here yet, so an agent that wants it cannot have tools"))
	}
	return a.refusal(a.Negotiation, bad)
}

// withoutEffect are the warnings about a document that say what of it has no
// effect: conditions in words, of which a runtime SHOULD warn (AAIF, Condition
// Expressions), fields that others overrule or need, and a later version of AAIF.
// What lies within a part of which more is said already is left out.
func withoutEffect(doc *aaif.Document, said []aaif.Problem) []aaif.Problem {
	var out []aaif.Problem
	for _, p := range doc.Lint() {
		switch p.Rule {
		case aaif.RuleStringCondition:
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

// refuses is true of the safety levels at which nothing may be left out.
func refuses(l aaif.SafetyLevel) bool { return l != aaif.SafetyMinimal && l != aaif.SafetyStandard }

// refusals are the problems that keep an agent of such a level from being
// hosted.
func (a *Agent) refusals(problems []aaif.Problem) []error {
	var bad []error
	for _, p := range problems {
		if p.Severity == aaif.SeverityError {
			bad = append(bad, fmt.Errorf("safety level %s: %s", a.Negotiation.Safety, p))
		}
	}
	return bad
}

func needsApproval(def *aaif.Definition) bool {
	c := def.Agent.Compliance
	return c != nil && c.HumanInTheLoop != nil && c.HumanInTheLoop.Enabled != nil && *c.HumanInTheLoop.Enabled
}

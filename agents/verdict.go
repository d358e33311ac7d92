package agents

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/orchestrate/topology"
)

// A Verdict is the result of checking a document against a runtime: which
// fields are not honoured, and whether the agent is hosted (AAIF, Capability
// Negotiation and Compliance Controls).
type Verdict struct {
	// Negotiation is the result of negotiating required_capabilities.
	Negotiation aaif.Negotiation `json:"negotiation"`
	// Notices are the differences between the document and what this runtime
	// does. They do not keep the agent from being hosted, and none is of
	// severity error.
	Notices []aaif.Problem `json:"notices,omitzero"`
	// Refusals are the reasons why the agent is not hosted; none if it is
	// hosted.
	Refusals []aaif.Problem `json:"refusals,omitzero"`
	// Unkept are the places of those Refusals that an operator may accept:
	// fields that a runtime MUST honour and this one does not; see
	// Options.AcceptUnhonoured.
	Unkept []string `json:"unkept,omitzero"`
	// Accepted are the places of such fields that the operator has accepted.
	Accepted []string `json:"accepted,omitzero"`

	accept []string
}

// Judge checks a definition against a runtime with these options. It uses the
// document alone: [New], which decides by the same rule, also finds out whether
// functions are registered and tools can be opened.
func Judge(doc *aaif.Document, opts Options) Verdict {
	v, _ := judge(doc, opts)
	return v
}

// judge does the work of Judge, and also returns the document with the
// conditions in words that the operator has accepted.
func judge(doc *aaif.Document, opts Options) (Verdict, *aaif.Document) {
	doc, held := doc.HoldHints(opts.AcceptUnhonoured)
	def := doc.Definition()
	v := Verdict{Negotiation: def.Negotiate(Offers(opts, true)), accept: opts.AcceptUnhonoured}
	if opts.byModel() {
		for _, p := range held {
			v.Accepted = append(v.Accepted, p.Pointer)
			v.add(p)
		}
	}
	plan, _ := orchestrate.Compile(def, opts.Model != nil || orchestrate.HasModel(def)) // topology.Check reports the errors of Compile
	elsewhere := delegates(def, plan, opts)
	supported := Honours(opts.Offer)
	if opts.Memory != nil {
		supported = supported.With(memoryFields...)
	}
	if !opts.byModel() {
		for _, d := range delegated {
			supported = supported.With(d.pointer)
		}
	}
	lacking := slices.Concat(aaif.NotHonoured(doc, supported), encryption(def, opts), condition.Check(doc))
	if def.Status == aaif.StatusDeprecated { // AAIF, Root and Identity Fields: a runtime MAY refuse it
		retired := aaif.Problem{Pointer: "/status", Rule: aaif.RuleDeprecated, Severity: aaif.SeverityWarning, Message: "the agent is deprecated"}
		if !opts.Deprecated {
			retired.Hint = "it is hosted only if the operator says so: worker --allow-deprecated"
			v.refuse(retired)
		} else {
			v.add(retired)
		}
	}
	var team []aaif.Problem
	if opts.byModel() {
		team = slices.DeleteFunc(topology.Check(doc), func(p aaif.Problem) bool { return p.Rule == topology.RuleName }) // a worker looks members up in the mesh, by their names
	}
	v.add(elsewhere...)
	v.add(withoutEffect(doc, slices.Concat(elsewhere, lacking), team)...)
	for _, p := range lacking {
		if p.Pointer == approval && acts(def, plan) && !v.accepts(p.Pointer) {
			p.Message, p.Hint = "tool calls cannot be approved here yet, so an agent that wants approval can have neither tools nor a team that its model leads", ""
			v.Unkept = append(v.Unkept, p.Pointer)
			v.refuse(p)
			continue
		}
		v.add(p)
	}
	for _, p := range team {
		if p.Severity == aaif.SeverityError { // an agent whose team cannot work is not hosted
			v.refuse(p)
			continue
		}
		v.add(p)
	}
	v.negotiated(v.Negotiation)
	return v, doc
}

// add is the only rule about a field that a runtime MUST honour and this one
// does not, which is a problem of severity error. At safety levels strict and
// regulated nothing may be left out, so the problem becomes a refusal. At the
// other levels, or if the operator has accepted that field, it becomes a
// warning.
func (v *Verdict) add(problems ...aaif.Problem) {
	for _, p := range problems {
		switch {
		case p.Severity != aaif.SeverityError:
		case v.accepts(p.Pointer):
			p.Severity, p.Hint = aaif.SeverityWarning, aaif.HintAccepted
			if !slices.Contains(v.Accepted, p.Pointer) {
				v.Accepted = append(v.Accepted, p.Pointer)
			}
		case v.Negotiation.Safety.LeavesNothingOut():
			level := fmt.Sprintf("safety level %s allows no agent without it", v.Negotiation.Safety)
			if p.Hint == "" || strings.HasPrefix(p.Hint, "a runtime must not drop") {
				p.Hint = level
			} else {
				p.Hint += "; " + level
			}
			v.Unkept = append(v.Unkept, p.Pointer)
			v.refuse(p)
			continue
		default:
			p.Severity = aaif.SeverityWarning
		}
		v.Notices = append(v.Notices, p)
	}
}

func (v *Verdict) accepts(pointer string) bool { return slices.Contains(v.accept, pointer) }

// refuse adds a refusal.
func (v *Verdict) refuse(p aaif.Problem) {
	p.Severity = aaif.SeverityError
	v.Refusals = append(v.Refusals, p)
}

// negotiated adds the problems of a negotiation that are not known yet. At
// strict and regulated an operator has no choice: a runtime that lacks a
// capability MUST reject the agent.
func (v *Verdict) negotiated(n aaif.Negotiation, known ...aaif.Problem) {
	v.Negotiation = n
	for _, p := range n.Problems() {
		switch {
		case slices.Contains(known, p):
		case p.Severity == aaif.SeverityError:
			v.refuse(p)
		default:
			v.Notices = append(v.Notices, p)
		}
	}
}

// Err returns nil if the agent is hosted, and otherwise an error with all
// refusals.
func (v *Verdict) Err() error {
	bad := []error{v.Negotiation.Err()}
	for _, p := range v.Refusals {
		if p.Rule != aaif.RuleCapability && p.Rule != aaif.RuleConditionLanguage { // v.Negotiation.Err has them in one line
			bad = append(bad, errors.New(p.String()))
		}
	}
	return errors.Join(bad...)
}

// approval is the field that requires a person's approval before tools write.
const approval = "/agent/compliance/human_in_the_loop"

// acts reports whether an agent has tools, or team members that its model calls
// like tools.
func acts(def *aaif.Definition, plan *orchestrate.Plan) bool {
	return len(def.Agent.Tools) > 0 || plan != nil && plan.Pattern == orchestrate.ModelLed
}

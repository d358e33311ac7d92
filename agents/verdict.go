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

// A Verdict is what a runtime makes of a document: what it does otherwise than
// the document says, and whether it hosts the agent (AAIF, Capability Negotiation
// and Compliance Controls).
type Verdict struct {
	// Negotiation is how required_capabilities fared.
	Negotiation aaif.Negotiation `json:"negotiation"`
	// Notices are what is done otherwise. None of them keeps the agent from being
	// hosted, and none is of severity error.
	Notices []aaif.Problem `json:"notices,omitzero"`
	// Refusals are what keeps the agent from being hosted; none if it is hosted.
	Refusals []aaif.Problem `json:"refusals,omitzero"`
	// Unkept are the places among Refusals of what a runtime MUST keep, this one
	// does not, and an operator may accept; see Options.AcceptUnhonoured.
	Unkept []string `json:"unkept,omitzero"`
	// Accepted are the places of which the operator has accepted that.
	Accepted []string `json:"accepted,omitzero"`

	accept []string
}

// Judge holds a definition against what a runtime with these options does. It
// looks at the document alone: whether a model can be reached, a function is there
// or a tool can be opened shows in [New], which judges by the same rule.
func Judge(doc *aaif.Document, opts Options) Verdict {
	v, _ := judge(doc, opts)
	return v
}

// judge is Judge, and returns the document with the conditions that the operator
// has accepted.
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
	plan, _ := orchestrate.Compile(def, opts.Model != nil || orchestrate.HasModel(def)) // what is wrong with it is topology's to say
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
		team = slices.DeleteFunc(topology.Check(doc), func(p aaif.Problem) bool { return p.Rule == topology.RuleName }) // who serves it asks the mesh
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
		if p.Severity == aaif.SeverityError { // a team that cannot work is not hosted
			v.refuse(p)
			continue
		}
		v.add(p)
	}
	v.negotiated(v.Negotiation)
	return v, doc
}

// add is the one rule about what a runtime MUST do and this one does not, which is
// a problem of severity error: safety levels strict and regulated are those at
// which nothing may be left out, so there it keeps the agent from being hosted. At
// the others the agent is hosted, and a warning says so; and also where the
// operator has accepted just that.
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

// refuse keeps the agent from being hosted.
func (v *Verdict) refuse(p aaif.Problem) {
	p.Severity = aaif.SeverityError
	v.Refusals = append(v.Refusals, p)
}

// negotiated adds what a negotiation says beyond what was known. The draft leaves an
// operator no choice at strict and regulated: a runtime that lacks a capability MUST
// reject the agent.
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

// Err is nil if the agent is hosted, and else an error with all that keeps it from
// being hosted.
func (v *Verdict) Err() error {
	bad := []error{v.Negotiation.Err()}
	for _, p := range v.Refusals {
		if p.Rule != aaif.RuleCapability && p.Rule != aaif.RuleConditionLanguage { // the negotiation says them in one line
			bad = append(bad, errors.New(p.String()))
		}
	}
	return errors.Join(bad...)
}

// approval is the field that asks for a person's word before tools write.
const approval = "/agent/compliance/human_in_the_loop"

// acts reports whether an agent has tools, or others in the place of tools.
func acts(def *aaif.Definition, plan *orchestrate.Plan) bool {
	return len(def.Agent.Tools) > 0 || plan != nil && plan.Pattern == orchestrate.ModelLed
}

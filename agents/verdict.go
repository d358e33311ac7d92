package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/orchestrate/topology"
	"github.com/aeemesh/aeemesh/agents/tool"
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

	accept   []string
	teamless bool // Refusals say why the team cannot work
}

// Judge checks a definition against a runtime with these options. It decides by the
// document alone: it makes the agent with [New], as if the operator had given an
// entity, the model and every function.
func Judge(doc *aaif.Document, opts Options) Verdict {
	v, _ := judge(doc, opts)
	given, err := asGiven(doc.Definition(), opts)
	if err == nil {
		_, err = New(doc, given)
		err = errors.Unwrap(err) // which agent it is
	}
	for _, err := range reasons(err) {
		p := aaif.Problem{Rule: RuleUnusable, Message: err.Error()}
		if pointer, message, ok := strings.Cut(p.Message, ": "); ok && strings.HasPrefix(pointer, "/") {
			p.Pointer, p.Message = pointer, message
		}
		v.refuse(p)
	}
	return v
}

// asGiven returns the options with stand-ins for what an operator may still give.
func asGiven(def *aaif.Definition, opts Options) (Options, error) {
	if _, err := aaif.EntityName(def.Agent.Name); err != nil && opts.As == "" {
		opts.As = "agent.unnamed"
	}
	opts.Open, opts.Models, opts.RequireTools, opts.IntentsDir, opts.Logger = nil, nil, false, "", nil
	if !opts.byModel() {
		return opts, nil
	}
	m, o := def.Agent.Model, def.Agent.Orchestration
	team := o != nil && len(o.Subagents)+len(o.Pipeline) > 0
	offline := m != nil && m.Provider == aaif.ProviderCustom && m.ProviderID == builtin.ProviderID
	if opts.Model == nil && !offline && (orchestrate.HasModel(def) || !team) { // a team without a model has another pattern
		opts.Model = builtin.New()
	}
	opts.Tools = new(tool.Registry)
	for i := range def.Agent.Tools {
		t := &def.Agent.Tools[i]
		if _, err := opts.Tools.Lookup(t.Name); err == nil || t.EffectiveProtocol() != aaif.ProtocolFunction {
			continue
		}
		if err := opts.Tools.Add(tool.Raw(tool.Definition{Name: t.Name}, func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil })); err != nil {
			return opts, fmt.Errorf("/agent/tools/%d: %w", i, err)
		}
	}
	return opts, nil
}

// reasons returns the errors that are joined in an error of [New], without refusals, which are
// in the verdict already.
func reasons(err error) (out []error) {
	switch e := err.(type) {
	case nil, *Refusal:
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			out = append(out, reasons(err)...)
		}
	default:
		out = append(out, err)
	}
	return out
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
			v.teamless = true
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

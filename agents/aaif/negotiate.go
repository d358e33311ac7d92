package aaif

import (
	"fmt"
	"slices"
	"strings"
)

// Action is what a runtime does about an agent whose requirements it does not
// fully meet (Capability Negotiation).
type Action string

const (
	ActionAccept         Action = "accept"           // everything is available
	ActionSkip           Action = "skip"             // minimal: log a warning and continue
	ActionDisable        Action = "disable"          // standard: import with a warning, and disable the dependent features
	ActionReject         Action = "reject"           // strict: MUST reject, naming what is missing
	ActionRejectAndAudit Action = "reject-and-audit" // regulated: MUST reject, and the failure MUST be audit-logged
)

// Accepts reports whether the agent may be hosted.
func (a Action) Accepts() bool {
	return a == ActionAccept || a == ActionSkip || a == ActionDisable
}

// A Negotiation is the result of comparing an agent's requirements with a
// runtime's offer.
type Negotiation struct {
	Action        Action      `json:"action"`
	Safety        SafetyLevel `json:"safety_level"`
	Satisfied     []string    `json:"satisfied,omitzero"`             // capabilities, sorted
	Unsatisfied   []string    `json:"unsatisfied,omitzero"`           // capabilities, sorted
	Languages     []Language  `json:"condition_languages,omitzero"`   // languages that the runtime evaluates, sorted
	Unevaluated   []Language  `json:"unevaluated_languages,omitzero"` // languages that it does not evaluate, sorted
	unevaluatedAt map[Language]string
}

// Negotiate decides whether a runtime hosts an agent, and under which
// conditions. The agent's safety level decides about a missing capability or
// condition language; an empty level counts as "standard", the schema's
// default, and an unknown one as "regulated". A condition in a language that
// the runtime does not evaluate is never satisfied.
//
// The languages always and never need no evaluator and are satisfied
// everywhere.
func Negotiate(need Need, have Offer, safety SafetyLevel) Negotiation {
	n := Negotiation{Action: ActionAccept, Safety: safety, unevaluatedAt: make(map[Language]string)}
	if safety == "" {
		n.Safety = SafetyStandard
	}
	for _, c := range need.Capabilities {
		if have.Offers(c) {
			n.Satisfied = append(n.Satisfied, c)
		} else {
			n.Unsatisfied = append(n.Unsatisfied, c)
		}
	}
	for l, pointer := range need.Languages {
		if l == LangAlways || l == LangNever || have.Languages.Has(l) {
			n.Languages = append(n.Languages, l)
		} else {
			n.Unevaluated = append(n.Unevaluated, l)
			n.unevaluatedAt[l] = pointer
		}
	}
	slices.Sort(n.Satisfied)
	slices.Sort(n.Unsatisfied)
	slices.Sort(n.Languages)
	slices.Sort(n.Unevaluated)
	if len(n.Unsatisfied)+len(n.Unevaluated) == 0 {
		return n
	}
	switch n.Safety {
	case SafetyMinimal:
		n.Action = ActionSkip
	case SafetyStandard:
		n.Action = ActionDisable
	case SafetyStrict:
		n.Action = ActionReject
	default:
		n.Action = ActionRejectAndAudit
	}
	return n
}

// Negotiate compares the definition's needs with an offer, at the definition's
// own safety level.
func (d *Definition) Negotiate(have Offer) Negotiation {
	safety := SafetyStandard
	if c := d.Agent.Compliance; c != nil && c.SafetyLevel != "" {
		safety = c.SafetyLevel
	}
	return Negotiate(d.Needs(), have, safety)
}

// Err returns nil if the agent may be hosted, and otherwise an error that lists
// what is missing.
func (n Negotiation) Err() error {
	if n.Action.Accepts() {
		return nil
	}
	var missing []string
	if len(n.Unsatisfied) > 0 {
		missing = append(missing, "capabilities "+strings.Join(n.Unsatisfied, ", "))
	}
	if len(n.Unevaluated) > 0 {
		missing = append(missing, "condition languages "+join(n.Unevaluated))
	}
	return fmt.Errorf("safety level %s: this runtime lacks %s", n.Safety, strings.Join(missing, " and "))
}

// Problems reports what is missing: as errors if it keeps the agent from being
// hosted, otherwise as warnings.
func (n Negotiation) Problems() []Problem {
	severity, hint := SeverityError, fmt.Sprintf("safety level %s allows no agent without it", n.Safety)
	switch n.Action {
	case ActionSkip:
		severity, hint = SeverityWarning, "safety level minimal: the agent runs without it"
	case ActionDisable:
		severity, hint = SeverityWarning, "safety level standard: what depends on it is switched off"
	}
	var ps []Problem
	for _, c := range n.Unsatisfied {
		p := errorf("/agent/required_capabilities", RuleCapability, "this runtime has no %s", c).hint("%s", hint)
		p.Severity = severity
		ps = append(ps, p)
	}
	for _, l := range n.Unevaluated {
		p := errorf(n.unevaluatedAt[l], RuleConditionLanguage, "this runtime does not evaluate %s", l).hint("%s", hint)
		p.Severity = severity
		ps = append(ps, p)
	}
	return sortProblems(ps)
}

func join[T ~string](names []T) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(n))
	}
	return b.String()
}

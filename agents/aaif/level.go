package aaif

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Level is a conformance level (Conformance Levels).
type Level string

const (
	LevelNone       Level = "" // does not even reach Core
	LevelCore       Level = "Core"
	LevelTooled     Level = "Tooled"
	LevelPortable   Level = "Portable"
	LevelMultiAgent Level = "Multi-agent"
	LevelObservable Level = "Observable"
	LevelEnterprise Level = "Enterprise"
	LevelStateful   Level = "Stateful"
)

// AllLevels returns the seven levels in the draft's order.
func AllLevels() []Level {
	return []Level{LevelCore, LevelTooled, LevelPortable, LevelMultiAgent, LevelObservable, LevelEnterprise, LevelStateful}
}

// Base is the level that this one extends. Multi-agent and Observable both
// extend Portable, so an Observable agent need not be a Multi-agent one. Core
// has no base.
func (l Level) Base() Level {
	switch l {
	case LevelTooled:
		return LevelCore
	case LevelPortable:
		return LevelTooled
	case LevelMultiAgent, LevelObservable:
		return LevelPortable
	case LevelEnterprise:
		return LevelObservable
	case LevelStateful:
		return LevelEnterprise
	}
	return LevelNone
}

// levelFields are the fields that each level requires of a document; a runtime
// of that level honours them.
var levelFields = map[Level][]string{
	LevelCore:       {"/agent/name", "/agent/goal"},
	LevelTooled:     {"/agent/tools/*/name", "/agent/tools/*/description", "/agent/tools/*/parameters_schema"},
	LevelPortable:   {"/agent/constraints"},
	LevelMultiAgent: {"/agent/orchestration/role", "/agent/orchestration/subagents/*/ref", "/agent/orchestration/handoff/*/condition", "/agent/orchestration/handoff/*/target_agent"},
	LevelObservable: {"/agent/telemetry/tracing", "/agent/evaluation/metrics"},
	LevelEnterprise: {"/agent/compliance/safety_level", "/agent/compliance/audit_log", "/provenance/signature"},
}

// Level returns the highest level, in the draft's order, of which a runtime
// honours every construct that is required of documents at that level
// (Conformance Levels: "a Consumer at level L"). Portable requires tools of all
// protocols, and Stateful requires checkpoints.
func (s Supported) Level(have Offer) Level {
	h := honourCheck{Supported: s}
	reached := map[Level]bool{LevelNone: true}
	highest := LevelNone
	for _, l := range AllLevels() {
		ok := reached[l.Base()]
		for _, f := range levelFields[l] {
			ok = ok && h.covered(f)
		}
		switch l {
		case LevelPortable:
			for _, p := range Protocols() {
				ok = ok && s.Protocols.Has(p)
			}
		case LevelStateful:
			ok = ok && have.Offers(CapStateCheckpoint) && have.Offers(CapStateRestore)
		}
		if reached[l] = ok; ok {
			highest = l
		}
	}
	return highest
}

// A LevelStatus says whether a definition reaches a level.
type LevelStatus struct {
	Level   Level     `json:"level"`
	Reached bool      `json:"reached"`
	Missing []Problem `json:"missing,omitzero"` // requirements of the level and of those below it that the definition does not meet
}

// Levels checks a definition against each of the seven levels, in the draft's
// order.
//
// An absent telemetry.tracing counts as true, its schema default: observability
// is opt-out (Design Principles). Stateful also requires the runtime to support
// checkpoints, which cannot be seen in a document. It extends Enterprise, as
// the draft's table says, although the text below the table says that this is
// no prerequisite.
func (d *Definition) Levels() []LevelStatus {
	statuses := make([]LevelStatus, 0, len(AllLevels()))
	missing := make(map[Level][]Problem)
	for _, l := range AllLevels() {
		missing[l] = slices.Concat(missing[l.Base()], d.missingFor(l))
		statuses = append(statuses, LevelStatus{Level: l, Reached: len(missing[l]) == 0, Missing: missing[l]})
	}
	return statuses
}

// Level returns the highest level that a definition reaches, in the draft's
// order, and the status of the next one. An invalid definition reaches none.
func (d *Definition) Level() (reached Level, next LevelStatus) {
	for _, s := range slices.Backward(d.Levels()) {
		if s.Reached {
			return s.Level, next
		}
		next = s
	}
	return LevelNone, next
}

// missingFor lists the unmet requirements of a level, without those of its
// base.
func (d *Definition) missingFor(l Level) []Problem {
	var ps []Problem
	want := func(ok bool, pointer, format string, args ...any) {
		if !ok {
			p := warnf(pointer, RuleRequired, format, args...)
			ps = append(ps, p.hint("level %s asks for it", l))
		}
	}
	a := &d.Agent
	switch l {
	case LevelCore:
		want(a.Name != "", "/agent", `"name" is missing`)
		want(a.Goal != "", "/agent", `"goal" is missing`)
	case LevelTooled:
		want(slices.ContainsFunc(a.Tools, func(t Tool) bool { return t.ParametersSchema != nil }),
			"/agent", "no tool with a parameters_schema")
	case LevelPortable:
		want(len(a.Constraints) > 0, "/agent", "no constraints")
		for i := range a.Tools {
			if reason := unresolvable(&a.Tools[i]); reason != "" {
				want(false, child("/agent/tools", i), "tool %q: %s", a.Tools[i].Name, reason)
			}
		}
	case LevelMultiAgent:
		o := a.Orchestration
		want(o != nil && o.Role != "", "/agent", "no orchestration.role")
		want(o != nil && len(o.Subagents)+len(o.Handoff) > 0, "/agent", "neither a subagent nor a handoff")
	case LevelObservable:
		want(a.Telemetry == nil || a.Telemetry.Tracing == nil || *a.Telemetry.Tracing,
			"/agent/telemetry/tracing", "tracing is switched off")
		e := a.Evaluation
		want(e != nil && slices.ContainsFunc(e.Metrics, func(m Metric) bool { return m.Threshold.IsSet() }),
			"/agent", "no evaluation metric with a threshold")
	case LevelEnterprise:
		c := a.Compliance
		want(c != nil && c.SafetyLevel != "", "/agent", "no compliance.safety_level")
		want(c != nil && c.AuditLog != nil && *c.AuditLog, "/agent", "compliance.audit_log is not true")
		want(d.Provenance != nil && d.Provenance.Signature != "", "", "no provenance.signature")
	case LevelStateful:
		want(slices.Contains(a.RequiredCapabilities, CapStateCheckpoint), "/agent",
			"required_capabilities lacks %s", CapStateCheckpoint)
	}
	return ps
}

// httpMethods are the methods that may precede the URL of protocol http.
var httpMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// unresolvable returns why a tool's endpoint cannot be resolved, or "". A
// function needs no endpoint. An OpenAPI document may be a local path, with a
// fragment that selects operations. A URL of protocol http may have a method
// before it. All others are URIs (AAIF, Tool Definitions; docs/tools.md has the
// forms).
func unresolvable(t *Tool) string {
	protocol := t.EffectiveProtocol()
	if protocol == ProtocolFunction {
		return ""
	}
	if t.Endpoint == "" {
		return fmt.Sprintf("protocol %s without an endpoint", protocol)
	}
	endpoint := t.Endpoint
	switch protocol {
	case ProtocolOpenAPI:
		if endpoint, _, _ = strings.Cut(endpoint, "#"); !strings.Contains(endpoint, "://") {
			return ""
		}
	case ProtocolHTTP:
		endpoint = strings.TrimSpace(endpoint)
		if method, rest, ok := strings.Cut(endpoint, " "); ok && slices.Contains(httpMethods, strings.ToUpper(method)) {
			endpoint = strings.TrimSpace(rest)
		}
	}
	if !absoluteURI(endpoint) {
		return "the endpoint is no URI"
	}
	return ""
}

// absoluteURI reports whether s is a URI with a scheme and something after it.
// Templates in braces are allowed.
func absoluteURI(s string) bool {
	if strings.ContainsAny(s, " \t\r\n\"<>\\^`|") {
		return false
	}
	u, err := url.Parse(strings.NewReplacer("{", "", "}", "").Replace(s))
	return err == nil && u.Scheme != "" && (u.Host != "" || u.Opaque != "" || u.Path != "")
}

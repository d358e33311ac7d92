package aaif

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// Lint reports what is valid but probably not what the author intended. All
// problems are warnings, sorted, with positions if the source is a text.
// Package agents/orchestrate/topology checks whether a team can work.
//
// The schemas' formats are checked here. AAIF's own conformance corpus has
// documents that must be accepted with ids that are no UUIDs, so an id, a time
// or a URI of the wrong form is never an error.
func (d *Document) Lint() []Problem {
	var l linter
	switch d.kind {
	case KindAgent:
		l.definition(d.definition)
	case KindState:
		l.state(d.state)
	case KindManifest:
		l.manifest(d.manifest)
	case KindReport:
		l.report(d.report)
	}
	return d.locate(sortProblems(l.problems))
}

type linter struct {
	problems []Problem
	schemas  schema.Pool // the schemas that the document embeds
}

// warn adds a warning, unless there are too many already.
func (l *linter) warn(pointer string, rule Rule, hint, format string, args ...any) {
	if len(l.problems) > maxProblems {
		return
	}
	p := warnf(pointer, rule, format, args...)
	p.Hint = hint
	l.problems = append(l.problems, p)
}

// id warns of an id that is not a UUID.
func (l *linter) id(pointer, id string) {
	if id != "" && !IsUUID(id) {
		l.warn(pointer, RuleID, "write 8-4-4-4-12 hex digits", "%s is no UUID", show(id))
	}
}

func (l *linter) time(pointer, text string) {
	if text == "" {
		return
	}
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		l.warn(pointer, RuleFormat, "write it as 2026-11-20T09:30:00Z", "%s is no RFC 3339 time", show(text))
	}
}

func (l *linter) uri(pointer, text string) {
	if text != "" && !absoluteURI(text) {
		l.warn(pointer, RuleFormat, "write it in full, with its scheme, as in https://host/path", "%s is no URI", show(text))
	}
}

// version warns of a document that was written for a later AAIF version than
// this package implements.
func (l *linter) version(text string) {
	if text != "" && laterVersion(text) {
		l.warn("/sc_version", RuleVersion, "what "+Version+" does not have is refused, not ignored",
			"the document is written for AAIF %s; this is %s", clip.Text(text, 60), Version)
	}
}

// laterVersion reports whether a version, of three numbers, is later than [Version].
func laterVersion(text string) bool {
	as, bs := strings.Split(text, "."), strings.Split(Version, ".")
	for i := range min(len(as), len(bs)) {
		x, errx := strconv.ParseUint(as[i], 10, 64)
		y, erry := strconv.ParseUint(bs[i], 10, 64)
		if errx != nil || erry != nil || x != y {
			return errx != nil || erry == nil && x > y // a number that does not fit into 64 bits counts as later
		}
	}
	return false
}

func (l *linter) definition(d *Definition) {
	l.version(d.Version)
	l.id("/agent_id", d.AgentID)
	if d.Status == StatusDeprecated {
		l.warn("/status", RuleDeprecated, "", "the agent is deprecated: runtimes may refuse it")
	}
	if p := d.Provenance; p != nil {
		l.time("/provenance/created_at", p.CreatedAt)
		l.time("/provenance/updated_at", p.UpdatedAt)
	}
	a := &d.Agent
	if _, err := EntityName(a.Name); err != nil {
		l.warn("/agent/name", RuleEntity, "name the entity yourself, as in worker --as agent.helper", "the name gives no entity id: a worker refuses the agent without --as")
	}
	for i, c := range a.RequiredCapabilities {
		l.capability(child("/agent/required_capabilities", i), c)
	}
	for pointer, c := range d.Conditions() {
		l.condition(pointer, c)
	}
	l.model(a)
	for i := range a.Context {
		l.context(child("/agent/context", i), &a.Context[i])
	}
	l.tools(a.Tools)
	for i := range a.Memory {
		l.memory(child("/agent/memory", i), &a.Memory[i])
	}
	if a.IO != nil {
		l.subschema("/agent/io/input_schema", a.IO.InputSchema)
		l.subschema("/agent/io/output_schema", a.IO.OutputSchema)
		l.io(a)
	}
	l.events(a.Events)
	if t := a.Telemetry; t != nil && t.TraceContextHeader != "" && strings.ContainsFunc(t.TraceContextHeader, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
		l.warn("/agent/telemetry/trace_context_header", RuleFormat, `write a name such as "traceparent"`, "%s cannot be the name of a header", show(t.TraceContextHeader))
	}
	l.evaluation(a.Evaluation)
	if c := a.Compliance; c != nil && c.HumanInTheLoop != nil {
		h, at := c.HumanInTheLoop, "/agent/compliance/human_in_the_loop"
		const hint, why = "set enabled to true, or delete it", "human_in_the_loop is not enabled"
		if h.Trigger != nil && !isTrue(h.Enabled) {
			l.warn(at+"/trigger", RuleIgnoredField, hint, "the trigger has no effect: %s", why)
		}
		if h.TimeoutSeconds.IsSet() && !isTrue(h.Enabled) {
			l.warn(at+"/timeout_seconds", RuleIgnoredField, hint, "the timeout has no effect: %s", why)
		}
	}
}

// capability warns of a capability that the registry does not list. A
// manifest's name for a listed capability is accepted, because an offer
// satisfies it.
func (l *linter) capability(pointer, c string) {
	known := Capabilities()
	if slices.Contains(known, c) || slices.Contains(known, registryName(c)) {
		return
	}
	hint := "capabilities are written category.capability, as in tool.http"
	if near := Nearest(c, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	} else if category, _, ok := strings.Cut(c, "."); ok {
		siblings := slices.DeleteFunc(known, func(k string) bool { return !strings.HasPrefix(k, category+".") })
		if len(siblings) > 0 {
			hint = "registered are " + strings.Join(siblings, ", ")
		}
	}
	l.warn(pointer, RuleRegistry, hint, "capability %q is not in the registry: no runtime has to know it", clip.Text(c, 60))
}

// subschema compiles an embedded JSON Schema. It must be self-contained, and
// within the limits of one schema and of all schemas of the document.
func (l *linter) subschema(pointer string, text []byte) {
	if len(text) == 0 {
		return
	}
	if _, err := l.schemas.Compile(text); err != nil {
		l.warn(pointer, RuleSubschema, "", "the JSON %s", err)
	}
}

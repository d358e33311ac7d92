package topology

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
)

// extension returns the JSON pointer of a member of x-aeemesh's orchestration.
func extension(names ...string) string {
	pointer := "/" + orchestrate.Extension + "/orchestration"
	for _, n := range names {
		pointer = memberAt(pointer, n)
	}
	return pointer
}

func memberAt(pointer, name string) string {
	return string(jsontext.Pointer(pointer).AppendToken(name))
}

// vocabularies are the permitted values of the extension's text members.
var vocabularies = map[string][]string{
	"tie":           {string(orchestrate.TieFail), string(orchestrate.TieFirst), string(orchestrate.TieMerge)},
	"on_error":      {string(orchestrate.OnErrorFail), string(orchestrate.OnErrorSkip), string(orchestrate.OnErrorFallback)},
	"retry_backoff": {string(aaif.BackoffFixed), string(aaif.BackoffLinear), string(aaif.BackoffExponential)},
}

// extension checks the root extension against the types that it is decoded
// into. The form is checked first: a wrong form has no meaning to check.
func (t *team) extension() {
	raw, ok := t.doc.Extension(orchestrate.Extension)
	if !ok {
		return
	}
	var root map[string]json.RawMessage
	if json.Unmarshal(raw, &root) != nil || root == nil {
		t.fail("/"+orchestrate.Extension, RuleExtension, "", "the extension has to be an object")
		return
	}
	for name := range root {
		if name != "orchestration" {
			t.fail(memberAt("/"+orchestrate.Extension, name), RuleExtension, instead(name, []string{"orchestration"}, "the extension has one member, orchestration"), "there is no member %s", quote(name))
		}
	}
	block, ok := root["orchestration"]
	if !ok {
		return
	}
	before := t.errors()
	t.shape(extension(), block, reflect.TypeFor[orchestrate.Extras]())
	if t.errors() == before {
		if _, err := orchestrate.ExtrasOf(t.def); err != nil { // a rule that shape does not check
			pointer, message, ok := strings.Cut(err.Error(), ": ")
			if !ok || !strings.HasPrefix(pointer, extension()) {
				pointer, message = extension(), err.Error()
			}
			t.fail(pointer, RuleExtension, "", "%s", message)
		}
	}
	if t.o == nil || t.pattern == noTeam {
		t.warn(extension(), aaif.RuleIgnoredField, "name subagents, or delete it", "it has no effect: the agent has no team")
		return
	}
	t.steps()
	t.uses(block)
}

// conditionType is checked by its own rules.
var conditionType = reflect.TypeFor[aaif.Condition]()

// shape checks a JSON value against a Go type: names, types, vocabularies.
func (t *team) shape(pointer string, raw json.RawMessage, want reflect.Type) {
	if want.Kind() == reflect.Pointer {
		want = want.Elem()
	}
	fail := func(what string) { t.fail(pointer, RuleExtension, "", "it has to be %s", what) }
	switch {
	case want == conditionType:
		var c aaif.Condition
		if json.Unmarshal(raw, &c) != nil || c.IsString() {
			t.fail(pointer, RuleExtension, `as in {"lang": "jmespath", "expr": "outputs.lint"}`, `it has to be an object with lang and expr`)
		}
	case want.Kind() == reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil || members == nil {
			fail("an object")
			return
		}
		types := membersOf(want)
		for name, value := range members {
			child := memberAt(pointer, name)
			typ, ok := types[name]
			if !ok {
				names := slices.Sorted(maps.Keys(types))
				t.fail(child, RuleExtension, instead(name, names, "there are "+strings.Join(names, ", ")), "there is no member %s", quote(name))
				continue
			}
			t.shape(child, value, typ)
		}
	case want.Kind() == reflect.Map:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil || members == nil {
			fail("an object")
			return
		}
		for name, value := range members {
			t.shape(memberAt(pointer, name), value, want.Elem())
		}
	case want.Kind() == reflect.String:
		var s string
		if json.Unmarshal(raw, &s) != nil || string(raw) == "null" {
			fail("text")
			return
		}
		words := vocabularies[lastName(pointer)]
		if words != nil && s != "" && !slices.Contains(words, s) {
			t.fail(pointer, RuleExtension, instead(s, words, ""), "%s is none of %s", quote(s), strings.Join(words, ", "))
		}
		if lastName(pointer) == "intent" && s != "" {
			if err := intents.CheckName(s); err != nil {
				t.fail(pointer, RuleExtension, "as in code.review", "%s", err)
			}
		}
	default:
		if json.Unmarshal(raw, reflect.New(want).Interface()) != nil || string(raw) == "null" {
			fail("a " + map[bool]string{true: "number", false: "whole number"}[want.Kind() == reflect.Float64])
			return
		}
		t.bounds(pointer, raw)
	}
}

// membersOf returns the JSON members of a struct.
func membersOf(typ reflect.Type) map[string]reflect.Type {
	out := make(map[string]reflect.Type)
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			out[name] = typ.Field(i).Type
		}
	}
	return out
}

// steps checks the members of steps: whether their names are known, and their
// values.
func (t *team) steps() {
	known := make(map[string]bool)
	for _, name := range slices.Concat(t.o.Pipeline, t.aliasesOf(t.listed)) {
		known[name] = true
	}
	for name, s := range t.extras.Steps {
		if !known[name] {
			t.fail(extension("steps", name), aaif.RuleReference, instead(name, t.aliases(), "declare it in subagents"), "no subagent has the alias %s", quote(name))
		}
		if s.Input != nil && !s.Input.IsString() {
			if _, err := condition.CompileQuery(*s.Input, condition.Options{}); err != nil {
				t.fail(extension("steps", name, "input"), condition.RuleCondition, "", "%s", err)
			}
		}
		if r := t.def.Agent.Runtime; r != nil && r.TimeoutSeconds.IsSet() {
			if limit := r.TimeoutSeconds.Float64(); limit > 0 && s.TimeoutSeconds > limit && !t.person(name) {
				t.warn(extension("steps", name, "timeout_seconds"), aaif.RuleIgnoredField, "raise runtime.timeout_seconds", "the agent itself has %v seconds for the whole task", limit)
			}
		}
		if s.EscalateTo != "" { // circles are reported by escalations
			if m := t.find(extension("steps", name, "escalate_to"), s.EscalateTo, aaif.SeverityError); m != nil {
				m.use(answering)
			}
			if s.TimeoutSeconds == 0 && t.person(name) && !t.escalatedTo(name) && !t.shares(name) {
				t.warn(extension("steps", name, "escalate_to"), aaif.RuleIgnoredField, "give timeout_seconds", "it has no effect: a person without timeout_seconds has all of the task's time")
			}
		}
	}
	t.escalations()
}

// person reports whether a member is a person: the agent does not run while it
// waits for one.
func (t *team) person(name string) bool {
	i, ok := t.byName[name]
	return ok && strings.HasPrefix(t.members[i].ref, subject.TypeHuman+".")
}

// shares reports whether a member of a sequence has a share of the time, because other members follow.
func (t *team) shares(name string) bool {
	if t.pattern != inTurn {
		return false
	}
	at := slices.Index(t.workers(), t.byName[name])
	return at >= 0 && at < len(t.workers())-1
}

// escalatedTo reports whether another step escalates to a member: the member
// then has that step's timeout.
func (t *team) escalatedTo(name string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(t.extras.Steps)), func(s orchestrate.StepExtras) bool {
		return s.EscalateTo != "" && t.lookup(s.EscalateTo) == t.lookup(name)
	})
}

// uses reports members of the extension that the team's pattern does not use.
func (t *team) uses(block json.RawMessage) {
	var have map[string]json.RawMessage
	if json.Unmarshal(block, &have) != nil {
		return
	}
	flock := t.pattern == swarm || t.pattern == inTurn
	vote := t.votes()
	for _, u := range []struct {
		name string
		used bool
		why  string
	}{
		{"vote_on", vote, "there is no majority vote"},
		{"tie", vote || t.scores(), "there is neither a vote nor a score"},
		{"synthesizer", flock, "only a swarm has answers to merge"},
		{"width", t.pattern == swarm, "no subagents work in parallel"},
		{"min_results", flock, "only a swarm has several results"},
	} {
		if _, there := have[u.name]; there && !u.used {
			t.warn(extension(u.name), aaif.RuleIgnoredField, "delete it", "it has no effect: %s", u.why)
		}
	}
}

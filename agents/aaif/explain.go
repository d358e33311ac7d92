package aaif

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pattern"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// explain describes one violation for the document's author. It uses the schema and
// the document, and only as a last resort the validator's own text.
func (s *documentSchema) explain(tree any, v schema.Problem) []Problem {
	at, value := v.Pointer, lookup(tree, v.Pointer)
	part, _ := lookup(s.source, v.Place).(map[string]any)
	limit := part[v.Keyword]

	switch v.Keyword {
	case "required":
		return s.explainRequired(at, value, limit)
	case "additionalProperties":
		return s.explainUnknown(at, value, part)
	case "type":
		return []Problem{explainType(at, value, limit)}
	case "enum":
		return []Problem{explainEnum(at, value, limit)}
	case "const":
		return []Problem{errorf(at, RuleConst, "this is %s; it has to be %s", show(value), show(limit))}
	case "pattern":
		return []Problem{explainPattern(at, value, limit)}
	case "minimum":
		return []Problem{errorf(at, RuleRange, "%s is less than %s", show(value), show(limit))}
	case "maximum":
		return []Problem{errorf(at, RuleRange, "%s is more than %s", show(value), show(limit))}
	case "minLength":
		return []Problem{errorf(at, RuleLength, "the text is empty")}
	case "minItems":
		return []Problem{errorf(at, RuleLength, "the array needs at least %s", items(limit))}
	case "maxItems":
		return []Problem{errorf(at, RuleLength, "the array may have at most %s", items(limit))}
	case "uniqueItems":
		return []Problem{explainUnique(at, value)}
	}
	return []Problem{errorf(at, RuleSchema, "%s", v.Message)}
}

func (s *documentSchema) explainRequired(at string, value, limit any) []Problem {
	object, _ := value.(map[string]any)
	names, _ := limit.([]any)
	var ps []Problem
	for _, n := range names {
		name, _ := n.(string)
		if _, ok := object[name]; ok {
			continue
		}
		p := errorf(at, RuleRequired, "%q is missing", name)
		switch {
		case name == "sc_standard":
			p = p.hint(`every AAIF document says "sc_standard": "SC-006"`)
		case name == "provider_id":
			p = p.hint(`provider "custom" has to say which one, such as "litellm" or "builtin"`)
		case name == "expr":
			p = p.hint("only the languages always and never do without an expression")
		case name == "agent" && at == "":
			p = p.hint("name, goal and all else about the agent stand under agent")
		}
		ps = append(ps, p)
	}
	return ps
}

// explainUnknown reports each field that an object must not have, with a
// suggestion of what its author meant.
func (s *documentSchema) explainUnknown(at string, value any, part map[string]any) []Problem {
	object, _ := value.(map[string]any)
	props, _ := part["properties"].(map[string]any)
	_, extensible := part["patternProperties"]
	var known []string
	for name := range props {
		if _, used := object[name]; !used {
			known = append(known, name)
		}
	}
	var ps []Problem
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if len(ps) > maxProblems {
			break
		}
		if _, ok := props[name]; ok || extensible && strings.HasPrefix(name, "x-") {
			continue
		}
		p := errorf(child(at, name), RuleUnknownField, "unknown field %q", clip.Text(name, 60))
		switch near, home := Nearest(name, known), s.home(name, at); {
		case authObject.RE().MatchString(at) && secretName(name) != harmless:
			p = p.hint("no credential stands in a document: name the environment variable in env_var, or the vault entry in vault_ref")
		case near != "":
			p = p.hint("did you mean %q?", near)
		case home != "":
			p = p.hint("it belongs in %s", home)
		case strings.HasPrefix(name, "x-") || name == "_comment":
			p = p.hint("extensions and comments stand at the root of the document")
		case extensible:
			p = p.hint(`your own fields start with "x-": %q`, "x-"+clip.Text(strings.ToLower(name), 60))
		}
		ps = append(ps, p)
	}
	return ps
}

// home returns the pointer of the object that a field of this name belongs to,
// if there is exactly one.
func (s *documentSchema) home(name, at string) string {
	homes := slices.DeleteFunc(slices.Clone(s.homes[name]), func(h string) bool { return h == at })
	if len(homes) != 1 {
		return ""
	}
	if homes[0] == "" {
		return "the root of the document"
	}
	return homes[0]
}

func explainType(at string, value, limit any) Problem {
	want := "one of another type"
	switch limit := limit.(type) {
	case string:
		want = article(limit)
	case []any:
		var names []string
		for _, l := range limit {
			names = append(names, article(fmt.Sprint(l)))
		}
		want = strings.Join(names, " or ")
	}
	p := errorf(at, RuleType, "this is %s; it has to be %s", article(jsonType(value)), want)
	switch got := jsonType(value); {
	case got == "null":
		p = p.hint("give it a value, or leave the field out")
	case limit == "string" && (got == "number" || got == "boolean"):
		p = p.hint("quote it")
	case limit == "boolean" && got == "string":
		p = p.hint("write true or false, without quotes")
	case (limit == "integer" || limit == "number") && got == "string":
		p = p.hint("write the number without quotes")
	case limit == "array" && got == "string":
		p = p.hint("write a list, even of one")
	}
	return p
}

func explainEnum(at string, value, limit any) Problem {
	var words []string
	list, _ := limit.([]any)
	for _, l := range list {
		words = append(words, fmt.Sprint(l))
	}
	got, _ := value.(string)
	p := errorf(at, RuleEnum, "%s is not one of %s", show(value), strings.Join(words, ", "))
	last := at[strings.LastIndexByte(at, '/')+1:]
	switch near := Nearest(got, words); {
	case subagentRole.RE().MatchString(at) && roleHints[got] != "":
		p = p.hint("%s", roleHints[got])
	case last == "provider" && provisionalProvider(got):
		p = p.hint(`write provider "custom" and provider_id %q`, got)
	case near != "":
		p = p.hint("did you mean %q?", near)
	case last == "provider" && slices.Contains(words, "openrouter"):
		p = p.hint(`write provider "custom", and name this one in provider_id`)
	case slices.Contains(words, "custom"):
		p = p.hint(`what is not in the list is "custom"`)
	}
	return p
}

var subagentRole = pattern.Of(`^/agent/orchestration/subagents/[0-9]+/role$`)

// roleHints say where to put roles of agents that are not valid as roles of a
// subagent.
var roleHints = map[string]string{
	"synthesizer":  "a subagent merges if its alias is synthesizer, or if that is the role of its own document",
	"referee":      "the referee is named in consensus.referee_agent",
	"orchestrator": "that is a role of the subagent's own document; here it is a worker",
	"router":       "that is a role of the subagent's own document; here it is a worker",
}

func explainPattern(at string, value, limit any) Problem {
	pattern, _ := limit.(string)
	p := errorf(at, RulePattern, "%s does not match %s", show(value), pattern)
	switch {
	case strings.HasPrefix(pattern, "^[0-9]+"):
		p.Message = show(value) + " is not a version"
		p = p.hint("write three numbers, as in 1.0.0")
	case strings.HasPrefix(pattern, "^[a-zA-Z_]"):
		p.Message = show(value) + " is not a tool name"
		p = p.hint("a letter or an underscore, then up to 63 letters, digits, underscores and hyphens")
	}
	return p
}

func explainUnique(at string, value any) Problem {
	items, _ := value.([]any)
	first := make(map[string]int, len(items))
	for i, item := range items {
		text, ok := item.(string)
		if !ok {
			continue
		}
		if j, ok := first[text]; ok {
			return errorf(child(at, i), RuleUnique, "%s is already item %d", show(text), j).hint("delete one")
		}
		first[text] = i
	}
	return errorf(at, RuleUnique, "an item is in the array twice")
}

func items(limit any) string {
	if n := fmt.Sprint(limit); n != "1" {
		return n + " items"
	}
	return "1 item"
}

// jsonType returns the JSON Schema type of a decoded value.
func jsonType(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case stdjson.Number:
		return "number"
	case []any:
		return "array"
	default:
		return "object"
	}
}

func article(jsonType string) string {
	switch jsonType {
	case "array", "object", "integer":
		return "an " + jsonType
	case "null":
		return "null"
	}
	return "a " + jsonType
}

// show quotes a value for a message: short, and never a credential.
func show(v any) string {
	switch v := v.(type) {
	case string:
		if _, secret := Credential(v); secret || looksRandom(v) {
			return "this text"
		}
		return fmt.Sprintf("%q", clip.Text(v, 60))
	case stdjson.Number:
		return clip.Text(string(v), 60)
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(v)
	}
	return "this " + jsonType(v)
}

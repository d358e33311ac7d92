package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// The subset of JSON Schema that structured output knows (Anthropic,
// "Structured outputs", JSON Schema limitations). What is beyond it goes into a
// description, where the model sees it, or is left out if it is no keyword of
// JSON Schema's.
var (
	subsetKeywords = []string{"$ref", "$defs", "type", "anyOf", "oneOf", "allOf", "description", "title", "enum", "const",
		"properties", "additionalProperties", "required", "items", "minItems", "format", "pattern"}
	otherKeywords = []string{"$schema", "$id", "$anchor", "$dynamicRef", "$comment", "not", "if", "then", "else", "dependentSchemas",
		"prefixItems", "contains", "patternProperties", "propertyNames", "multipleOf", "maximum", "exclusiveMaximum", "minimum",
		"exclusiveMinimum", "maxLength", "minLength", "maxItems", "uniqueItems", "maxContains", "minContains", "maxProperties",
		"minProperties", "dependentRequired", "contentEncoding", "contentMediaType", "contentSchema", "default", "deprecated",
		"readOnly", "writeOnly", "examples"}
	subsetFormats = []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)

// subset is a JSON Schema in the words that structured output knows, nil where
// none can be made of it or nothing is left to enforce.
func subset(schema json.RawMessage) json.RawMessage {
	made, err := fit(schema)
	var s words
	if err != nil || json.Unmarshal(made, &s) != nil {
		return nil
	}
	for _, name := range []string{"type", "anyOf", "allOf", "$ref", "enum"} {
		if s[name] != nil {
			return made
		}
	}
	return nil
}

// anything is the schema that every value is valid against.
var anything = json.RawMessage(`true`)

// words are the members of a schema.
type words map[string]json.RawMessage

// fit is a schema in the subset: anything, where nothing is left of it.
func fit(schema json.RawMessage) (json.RawMessage, error) {
	schema = bytes.TrimSpace(schema)
	if string(schema) == "true" || string(schema) == "false" {
		return schema, nil
	}
	var s words
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errors.New("null is no schema")
	}
	maps.DeleteFunc(s, empty)
	if ref, ok := s["$ref"]; ok { // nothing may stand beside it
		s = words{"$ref": ref}
	}
	beyond := words{}
	for name, value := range s {
		if slices.Contains(otherKeywords, name) {
			beyond[name] = value
		}
		if !slices.Contains(subsetKeywords, name) {
			delete(s, name)
		}
	}
	if err := s.branches(); err != nil {
		return nil, err
	}
	if !s.has("$ref") && !s.has("type") && !s.has("anyOf") && !s.has("allOf") && !s.has("enum") && !s.has("const") {
		return anything, nil
	}
	if err := s.typed(beyond); err != nil {
		return nil, err
	}
	if err := s.describe(beyond); err != nil {
		return nil, err
	}
	return endpoint.Encode(s)
}

// empty reports whether a keyword's value says nothing.
func empty(name string, v json.RawMessage) bool {
	var list []json.RawMessage
	switch {
	case string(v) == "null":
		return true
	case name == "const" || name == "default" || name == "examples": // whose values are the author's
		return false
	case name == "uniqueItems" || name == "deprecated" || name == "readOnly" || name == "writeOnly":
		return string(v) == "false"
	case name == "$defs":
		return string(v) == "{}"
	}
	return string(v) == `""` || json.Unmarshal(v, &list) == nil && len(list) == 0
}

func (s words) has(name string) bool { return s[name] != nil }

// fit replaces the schema that a keyword has, if it is there.
func (s words) fit(name string) (err error) {
	if s.has(name) {
		s[name], err = fit(s[name])
	}
	return err
}

// fitAll replaces the schemas in the object that a keyword has, if it is there.
func (s words) fitAll(name string) error {
	if !s.has(name) {
		return nil
	}
	var all words
	if err := json.Unmarshal(s[name], &all); err != nil {
		return err
	}
	for key := range all {
		if err := all.fit(key); err != nil {
			return err
		}
	}
	raw, err := endpoint.Encode(all)
	s[name] = raw
	return err
}

// branches brings definitions and combinations of schemas into the subset, which
// has no oneOf, and no branch of anyOf that takes anything.
func (s words) branches() error {
	if err := s.fitAll("$defs"); err != nil {
		return err
	}
	if s.has("oneOf") && !s.has("anyOf") {
		s["anyOf"] = s["oneOf"]
	}
	delete(s, "oneOf")
	for _, name := range []string{"anyOf", "allOf"} {
		if !s.has(name) {
			continue
		}
		var list, kept []json.RawMessage
		if err := json.Unmarshal(s[name], &list); err != nil {
			return err
		}
		for _, branch := range list {
			made, err := fit(branch)
			if err != nil {
				return err
			}
			if name == "allOf" || string(made) != "true" || string(bytes.TrimSpace(branch)) == "true" {
				kept = append(kept, made)
			}
		}
		delete(s, name)
		if len(kept) > 0 {
			raw, err := endpoint.Encode(kept)
			if err != nil {
				return err
			}
			s[name] = raw
		}
	}
	return nil
}

// typed brings what belongs to the schema's type into the subset. Objects are
// closed, unless they have no properties but values of one schema.
func (s words) typed(beyond words) error {
	if !s.has("type") {
		return nil
	}
	var typ string
	if err := json.Unmarshal(s["type"], &typ); err != nil {
		return err // several types are beyond the subset
	}
	switch typ {
	case "object":
		if !s.has("properties") && s.has("additionalProperties") {
			return s.fit("additionalProperties")
		}
		if !s.has("properties") {
			s["properties"] = json.RawMessage(`{}`)
		}
		s["additionalProperties"] = json.RawMessage(`false`)
		return s.fitAll("properties")
	case "string":
		var f string
		if s.has("format") && json.Unmarshal(s["format"], &f) != nil {
			return errors.New("format is no string")
		}
		if f != "" && !slices.Contains(subsetFormats, f) {
			s.move("format", beyond)
		}
	case "array":
		if n := string(s["minItems"]); n != "" && n != "0" && n != "1" {
			s.move("minItems", beyond)
		}
		return s.fit("items")
	}
	return nil
}

func (s words) move(name string, to words) {
	to[name] = s[name]
	delete(s, name)
}

// describe puts what is beyond the subset into the description.
func (s words) describe(beyond words) error {
	if len(beyond) == 0 {
		return nil
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(beyond)) {
		var text string
		if json.Unmarshal(beyond[name], &text) != nil {
			var b bytes.Buffer
			if err := json.Compact(&b, beyond[name]); err != nil {
				return err
			}
			text = b.String()
		}
		parts = append(parts, name+": "+text)
	}
	var description string
	if s.has("description") {
		if err := json.Unmarshal(s["description"], &description); err != nil {
			return err
		}
		description += "\n\n"
	}
	raw, err := endpoint.Encode(description + "{" + strings.Join(parts, ", ") + "}")
	s["description"] = raw
	return err
}

package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope"
)

// The subset of JSON Schema that structured output supports (Anthropic, "Structured outputs", JSON
// Schema limitations). Other keywords of JSON Schema go into a description, where the model sees
// them. Members that are no keywords of JSON Schema are left out.
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

// subset converts a JSON Schema to the subset. It returns nil if the schema cannot be converted, or
// if nothing is left to enforce.
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

// anything is the schema that accepts every value.
var anything = json.RawMessage(`true`)

// words are the members of a JSON Schema, by keyword.
type words map[string]json.RawMessage

// fit converts a schema to the subset. It returns anything if nothing is left of the schema.
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
	if ref, ok := s["$ref"]; ok { // the API accepts no other member beside it
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
	return envelope.EncodeJSON(s)
}

// empty reports whether a keyword has no effect with this value.
func empty(name string, v json.RawMessage) bool {
	var list []json.RawMessage
	switch {
	case string(v) == "null":
		return true
	case name == "const" || name == "default" || name == "examples": // here every value has a meaning
		return false
	case name == "uniqueItems" || name == "deprecated" || name == "readOnly" || name == "writeOnly":
		return string(v) == "false"
	case name == "$defs":
		return string(v) == "{}"
	}
	return string(v) == `""` || json.Unmarshal(v, &list) == nil && len(list) == 0
}

func (s words) has(name string) bool { return s[name] != nil }

// fit converts the schema that is the value of a keyword, if the keyword is present.
func (s words) fit(name string) (err error) {
	if s.has(name) {
		s[name], err = fit(s[name])
	}
	return err
}

// fitAll converts the schemas in the object that is the value of a keyword, if the keyword is
// present.
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
	raw, err := envelope.EncodeJSON(all)
	s[name] = raw
	return err
}

// branches converts definitions and combinations of schemas: oneOf becomes anyOf, and a branch of
// anyOf of which nothing is left is removed.
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
			raw, err := envelope.EncodeJSON(kept)
			if err != nil {
				return err
			}
			s[name] = raw
		}
	}
	return nil
}

// typed converts the keywords that belong to the schema's type. It closes objects, except those
// that have no properties and one schema for all values.
func (s words) typed(beyond words) error {
	if !s.has("type") {
		return nil
	}
	var typ string
	if err := json.Unmarshal(s["type"], &typ); err != nil {
		return err // the subset has no lists of types
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

// describe appends the keywords beyond the subset to the description.
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
	raw, err := envelope.EncodeJSON(description + "{" + strings.Join(parts, ", ") + "}")
	s["description"] = raw
	return err
}

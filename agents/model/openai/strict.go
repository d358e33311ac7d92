package openai

import (
	"encoding/json"
	"slices"
	"strings"
)

// The subset of JSON Schema that supports strict adherence (OpenAI, "Structured Outputs", Supported
// schemas). Other schemas are sent without strict, because with strict they would be refused.
const (
	maxStrictDepth      = 10
	maxStrictProperties = 5000
	maxStrictEnum       = 1000
)

var (
	strictKeywords = []string{"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
		"definitions", "title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minItems", "maxItems"}
	strictFormats = []string{"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)

// fitsStrict reports whether a schema is within the strict subset.
func fitsStrict(schema json.RawMessage) bool {
	var root map[string]json.RawMessage
	if json.Unmarshal(schema, &root) != nil || str(root["type"]) != "object" || root["anyOf"] != nil {
		return false
	}
	c := strictCheck{properties: maxStrictProperties, enum: maxStrictEnum}
	return c.fits(schema, maxStrictDepth)
}

type strictCheck struct{ properties, enum int } // how many more of each are permitted

func (c *strictCheck) fits(schema json.RawMessage, depth int) bool {
	var s map[string]json.RawMessage
	if depth < 0 || json.Unmarshal(schema, &s) != nil || s == nil {
		return false
	}
	for name := range s {
		if !slices.Contains(strictKeywords, name) {
			return false
		}
	}
	if ref, ok := s["$ref"]; ok && !strings.HasPrefix(str(ref), "#") {
		return false
	}
	if f, ok := s["format"]; ok && !slices.Contains(strictFormats, str(f)) {
		return false
	}
	if enum, ok := s["enum"]; ok {
		var values []json.RawMessage
		if json.Unmarshal(enum, &values) != nil {
			return false
		}
		if c.enum -= len(values); c.enum < 0 {
			return false
		}
	}
	if !c.object(s, depth) {
		return false
	}
	if items, ok := s["items"]; ok && !c.fits(items, depth-1) {
		return false
	}
	if branches, ok := s["anyOf"]; ok {
		var list []json.RawMessage
		if json.Unmarshal(branches, &list) != nil {
			return false
		}
		for _, b := range list {
			if !c.fits(b, depth-1) {
				return false
			}
		}
	}
	for _, name := range []string{"$defs", "definitions"} {
		var defs map[string]json.RawMessage
		if raw, ok := s[name]; ok && json.Unmarshal(raw, &defs) != nil {
			return false
		}
		for _, d := range defs {
			if !c.fits(d, depth-1) {
				return false
			}
		}
	}
	return true
}

// object checks that the schema of an object is closed, and requires all its properties.
func (c *strictCheck) object(s map[string]json.RawMessage, depth int) bool {
	var types []string
	if json.Unmarshal(s["type"], &types) != nil {
		types = []string{str(s["type"])}
	}
	if !slices.Contains(types, "object") {
		return s["properties"] == nil && s["required"] == nil && s["additionalProperties"] == nil
	}
	var required []string
	var properties map[string]json.RawMessage
	if string(s["additionalProperties"]) != "false" ||
		s["required"] != nil && json.Unmarshal(s["required"], &required) != nil ||
		s["properties"] != nil && json.Unmarshal(s["properties"], &properties) != nil {
		return false
	}
	if c.properties -= len(properties); c.properties < 0 {
		return false
	}
	for name, p := range properties {
		if !slices.Contains(required, name) || !c.fits(p, depth-1) {
			return false
		}
	}
	return true
}

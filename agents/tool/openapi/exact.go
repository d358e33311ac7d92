package openapi

import (
	"bytes"
	"encoding/json"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// exactKey is the member of a schema that carries the values of some of its keywords from
// [keepExact] to [exact], as JSON in strings.
const exactKey = "x-aeemesh-exact"

// longNumber matches what may be a number that a float does not hold.
var longNumber = pattern.Of(`[0-9][0-9.]{15}`)

// valued are the keywords whose values may contain numbers.
var valued = []string{"enum", "const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}

// byName are the members whose own members are named by the description's author, so these names
// are not keywords.
var byName = map[string]bool{
	"properties": true, "patternProperties": true, "dependentSchemas": true, "$defs": true, "paths": true, "content": true, "encoding": true, "variables": true,
	"schemas": true, "responses": true, "parameters": true, "requestBodies": true, "headers": true, "securitySchemes": true, "links": true, "callbacks": true, "pathItems": true,
}

// keepExact adds to the schemas of a description the values with long numbers. The library
// decodes numbers to floats, which changes the id 9007199254740993 to 9007199254740992.
func keepExact(description []byte) []byte {
	if !longNumber.RE().Match(description) {
		return description
	}
	d := json.NewDecoder(bytes.NewReader(description))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return description
	}
	addExact(v, false)
	out, err := json.Marshal(v)
	if err != nil {
		return description
	}
	return out
}

// addExact adds the values below v. names says that the members of v are not keywords.
func addExact(v any, names bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			addExact(item, false)
		}
	case map[string]any:
		kept := make(map[string]string)
		for _, keyword := range valued {
			if value, there := v[keyword]; there && !names {
				if text, err := json.Marshal(value); err == nil && longNumber.RE().Match(text) {
					kept[keyword] = string(text)
				}
			}
		}
		for name, member := range v {
			switch {
			case names:
				addExact(member, false)
			case name == "enum" || name == "const" || name == "default" || name == "example" || name == "examples": // values, not schemas
			default:
				addExact(member, byName[name])
			}
		}
		if len(kept) > 0 {
			v[exactKey] = kept
		}
	}
}

// exact replaces values in m, the conversion of a schema, by the exact values from keepExact.
func exact(s *openapi3.Schema, m map[string]any) {
	kept, _ := s.Extensions[exactKey].(map[string]any)
	for keyword, text := range kept {
		switch {
		case keyword == "minimum" && s.ExclusiveMin.IsTrue():
			keyword = "exclusiveMinimum"
		case keyword == "maximum" && s.ExclusiveMax.IsTrue():
			keyword = "exclusiveMaximum"
		}
		raw, _ := text.(string)
		d := json.NewDecoder(bytes.NewReader([]byte(raw)))
		d.UseNumber()
		var v any
		if _, there := m[keyword]; there && d.Decode(&v) == nil {
			m[keyword] = v
		}
	}
}

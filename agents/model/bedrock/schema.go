package bedrock

import (
	"bytes"
	"encoding/json"
	"slices"
)

// known are the keywords of JSON Schema that the models' structured output
// supports. Others are left out; the caller's own validation of the answer
// covers them.
var known = []string{"$ref", "$defs", "definitions", "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "allOf", "description", "title", "default", "format"}

// subset converts a JSON Schema to the supported keywords, with closed objects,
// which structured output requires. It returns false if nothing would be left
// to enforce: the schema is then described in the prompt.
func subset(schema json.RawMessage) (json.RawMessage, bool) {
	var in map[string]any
	dec := json.NewDecoder(bytes.NewReader(schema))
	dec.UseNumber() // a float64 would change long numbers of enum and const
	if dec.Decode(&in) != nil || in["type"] == nil && in["properties"] == nil && in["anyOf"] == nil && in["allOf"] == nil && in["$ref"] == nil && in["enum"] == nil {
		return nil, false
	}
	out, err := json.Marshal(narrow(in))
	return out, err == nil
}

// narrow converts a schema to the subset. It modifies the schema's maps.
func narrow(v any) any {
	s, ok := v.(map[string]any)
	if !ok {
		return v // true and false are schemas, too
	}
	if one, ok := s["oneOf"]; ok && s["anyOf"] == nil { // the validation of the answer is exact
		s["anyOf"] = one
	}
	for name, value := range s {
		if !slices.Contains(known, name) {
			delete(s, name)
			continue
		}
		switch name {
		case "properties", "$defs", "definitions":
			if members, ok := value.(map[string]any); ok {
				for n, m := range members {
					members[n] = narrow(m)
				}
			}
		case "anyOf", "allOf":
			if list, ok := value.([]any); ok {
				for i := range list {
					list[i] = narrow(list[i])
				}
			}
		case "items", "additionalProperties":
			s[name] = narrow(value)
		}
	}
	if _, object := s["properties"]; object || s["type"] == "object" {
		if s["additionalProperties"] == nil || s["additionalProperties"] == true {
			s["additionalProperties"] = false
		}
	}
	return s
}

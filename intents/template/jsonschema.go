package template

import (
	"encoding/json"
	"slices"
)

// extension is the member of a JSON Schema for properties of a template that JSON Schema cannot
// express.
const extension = "x-sdsi"

// Members of the extension: at the top of a schema, and in a property.
type (
	topExtension struct {
		SchemaID       string          `json:"schema_id,omitempty"`
		Scenario       string          `json:"scenario,omitempty"`
		Language       string          `json:"language,omitempty"`
		ResponseSchema json.RawMessage `json:"response_schema,omitempty"`
	}
	keyExtension struct {
		Type         Type              `json:"key_type,omitempty"` // only for "other", whose schema has two types
		Descriptions map[string]string `json:"semantic_descriptions,omitempty"`
		Value        json.RawMessage   `json:"value_schema,omitempty"` // if its members cannot be merged with the key's
		Property     string            `json:"property,omitempty"`
		Experimental bool              `json:"experimental,omitempty"`
	}
)

// JSONSchema returns the JSON Schema (2020-12) of the payloads that fill the template. It does not
// restrict keys that the template does not have: the policy of a [Form] decides about them. Members
// named x-sdsi contain what JSON Schema cannot express, so that [FromJSONSchema] returns the same
// template. It is nil for an invalid template.
func (t *Template) JSONSchema() json.RawMessage {
	if t.Validate() != nil {
		return nil
	}
	c := t.Complete()
	b := []byte(`{"$schema":"https://json-schema.org/draft/2020-12/schema","title":`)
	b = append(b, quoteJSON(c.Scenario)...)
	if c.Description != "" {
		b = append(append(b, `,"description":`...), quoteJSON(c.Description)...)
	}
	b = append(b, `,"type":"object","properties":{`...)
	required := []string{}
	for i := range c.Keys {
		k := &c.Keys[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, quoteJSON(k.Name)...), ':')
		b = k.appendSchema(b)
		if k.Required {
			required = append(required, k.Name)
		}
	}
	b = append(append(b, `},"required":`...), written(required)...)
	b = append(append(b, `,"`+extension+`":`...), written(topExtension{c.SchemaID, c.Scenario, c.Language, c.ResponseSchema})...)
	return append(b, '}')
}

// appendSchema appends the schema of the key's values.
func (k *Key) appendSchema(b []byte) []byte {
	x := keyExtension{Descriptions: k.Descriptions, Property: k.Property, Experimental: k.Experimental}
	if k.Name == Other {
		x.Type = k.Type
		b = append(b, `{"type":["string","array"],"items":{"type":"string"}`...)
	} else {
		b = append(append(b, `{"type":`...), quoteJSON(string(k.Type))...)
	}
	b = append(append(b, `,"description":`...), quoteJSON(k.Description)...)
	if !isNull(k.Default) {
		b = append(append(b, `,"default":`...), k.Default...)
	}
	if k.Deprecated {
		b = append(b, `,"deprecated":true`...)
	}
	switch members := membersOf(k.Value); {
	case len(k.Value) == 0:
	case beside(members):
		b = appendMembers(b, members)
	default:
		x.Value = k.Value
		b = append(append(append(b, `,"allOf":[`...), k.Value...), ']')
	}
	if text := written(x); string(text) != "{}" {
		b = append(append(b, `,"`+extension+`":`...), text...)
	}
	return append(b, '}')
}

// ownMembers are the members of a property that come from the key and not from its value_schema.
var ownMembers = map[string]bool{"type": true, "description": true, "default": true, "deprecated": true, extension: true}

// beside reports whether a value_schema's members and the key's own fit into one object.
func beside(members []member) bool {
	return len(members) > 0 && !slices.ContainsFunc(members, func(m member) bool { return ownMembers[m.name] })
}

// written returns v as JSON. Its parts have been validated.
func written(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		return []byte("{}")
	}
	return raw
}

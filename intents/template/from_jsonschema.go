package template

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/intents/schema"
)

// FromJSONSchema makes a template from the JSON Schemas of an agent's contract, AAIF's
// io.input_schema and io.output_schema (nil: none): a property becomes a key, its description the
// semantic_description, and its constraints the value_schema. Local references are replaced by
// their targets. A property without a description gets a plain one made from its name.
//
// Key names are in snake_case. A property with another name, for instance departureDate, becomes
// the key departure_date with [Key.Property], so that the handler gets its own names. The template
// lacks rules at the top of input that concern several properties (allOf, dependentRequired, …);
// the agent's own schema still enforces them.
//
// id and scenario may be empty if input came from [Template.JSONSchema]. The error is an
// [*Error] with all problems; its pointers refer to input, or to the template's members.
func FromJSONSchema(id, scenario string, input, output json.RawMessage) (*Template, error) {
	var c conversion
	t := c.template(id, scenario, input, output)
	if err := c.err("input_schema"); err != nil {
		return nil, err
	}
	return t.Complete(), nil
}

// A conversion makes one template.
type conversion struct {
	report
	root  []byte
	spent int // bytes of inlined references
}

func (c *conversion) template(id, scenario string, input, output json.RawMessage) *Template {
	if len(input) > MaxBytes {
		c.add("", "limit", "give the agent a template of its own", "has more than %d bytes", MaxBytes)
		return nil
	}
	compiled, err := schema.Compile(input)
	if err != nil {
		c.refusedSchema("", err)
		return nil
	}
	if jsontext.Value(input).Kind() != '{' || !compiled.TakesObject() {
		c.add("", "type", "describe an object with properties", "does not describe an object")
		return nil
	}
	c.root = input
	top := membersOf(c.inline(input, "", 0))
	t := &Template{SchemaID: id, Scenario: scenario}
	var x topExtension
	required := map[string]bool{}
	var properties []member
	for _, m := range top {
		switch m.name {
		case "description":
			t.Description = plainText(m.value)
		case "required":
			for _, name := range itemsOf(m.value) {
				required[textOf(name)] = true
			}
		case "properties":
			properties = membersOf(m.value)
		case extension:
			_ = json.Unmarshal(m.value, &x) // an extension of a wrong form is ignored
		}
	}
	t.Language, t.ResponseSchema = x.Language, x.ResponseSchema
	t.SchemaID = cmp.Or(t.SchemaID, x.SchemaID)
	t.Scenario = cmp.Or(t.Scenario, x.Scenario)
	if !isNull(output) {
		t.ResponseSchema = bytes.Clone(output)
	}
	for _, m := range properties {
		if k, ok := c.key(m); ok {
			k.Required = required[m.name]
			t.Keys = append(t.Keys, k)
		}
		delete(required, m.name)
	}
	for name := range required {
		c.add("/required", "required", "add the property", "%s is required and no property", quoted(name))
	}
	if len(c.problems) == 0 {
		c.validate(t)
	}
	return t
}

// validate adds the template's problems, with pointers to the properties.
func (c *conversion) validate(t *Template) {
	var bad *Error
	if !errors.As(t.Validate(), &bad) {
		return
	}
	for _, p := range bad.Problems {
		if rest, ok := strings.CutPrefix(p.Pointer, "/keys/"); ok {
			number, rest, _ := strings.Cut(rest, "/")
			if i, err := strconv.Atoi(number); err == nil && i < len(t.Keys) {
				p.Pointer = at("/properties", t.Keys[i].property())
				if rest = strings.TrimPrefix(rest, "value_schema"); rest != "" {
					p.Pointer += "/" + strings.TrimPrefix(rest, "/")
				}
			}
		}
		c.add(p.Pointer, p.Rule, p.Remedy, "%s", p.Message)
	}
	c.truncated = c.truncated || bad.Truncated
}

// key makes a key from a property.
func (c *conversion) key(m member) (Key, bool) {
	p := at("/properties", m.name)
	k := Key{Name: snake(m.name)}
	if k.Name == "" {
		c.add(p, "key_name", "give the property a name of ASCII letters, digits and _", "%s has no name in snake_case", quoted(m.name))
		return k, false
	}
	if k.Name != m.name {
		k.Property = m.name
	}
	var x keyExtension
	var rest []member
	members := unwrapped(membersOf(m.value))
	title := ""
	for _, m := range members {
		switch m.name {
		case "type":
			k.Type = typeOf(m.value)
		case "description":
			k.Description = plainText(m.value)
		case "default":
			if !isNull(m.value) {
				k.Default = bytes.Clone(m.value)
			}
		case "deprecated":
			k.Deprecated = string(m.value) == "true"
		case extension:
			_ = json.Unmarshal(m.value, &x) // an extension of a wrong form is ignored
		default:
			if m.name == "title" {
				title = plainText(m.value)
			}
			rest = append(rest, m)
		}
	}
	if x.Property != "" {
		k.Property = x.Property
	}
	k.Descriptions, k.Experimental = x.Descriptions, x.Experimental
	k.Value = objectOf(rest)
	if x.Value != nil {
		k.Value = x.Value
	}
	if k.Name == Other {
		c.other(&k, p, members, x)
	}
	if k.Type == "" {
		k.Type = inferred(rest)
	}
	if k.Type == "" {
		c.add(p, "type", "give the property one type of JSON Schema", "has no single type, and a key has one")
		return k, false
	}
	if strings.TrimSpace(k.Description) == "" {
		k.Description = generated(&k, title, rest)
	}
	return k, true
}

// other converts a property with the name of the key "other". It must accept strings, because this
// key is always accepted.
func (c *conversion) other(k *Key, p string, members []member, x keyExtension) {
	if x.Type != "" {
		k.Type, k.Value = x.Type, nil
		return
	}
	for _, m := range members {
		if m.name == "items" && len(membersOf(m.value)) == 1 && membersOf(m.value)[0].name == "type" && textOf(membersOf(m.value)[0].value) == "string" {
			k.Value = nil
		}
	}
	if k.Type == String && k.Value == nil || k.Type == Array && k.Value == nil {
		return
	}
	c.add(p, "other", "rename the property: other is the key for words that fit no other one", "the property other must be a string or an array of strings without more rules")
}

// typeOf returns the only type of a property; null beside it means optional, and is ignored.
func typeOf(raw []byte) Type {
	all := typesOf(raw)
	types := slices.DeleteFunc(slices.Clone(all), func(t Type) bool { return t == Null })
	switch {
	case len(types) == 1:
		return types[0]
	case len(types) == 2 && types[0].takes(types[1]): // integer and number
		return Number
	case len(types) == 0 && len(all) > 0:
		return Null
	}
	return ""
}

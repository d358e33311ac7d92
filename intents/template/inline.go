package template

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of inlined references.
const (
	maxInlineDepth = 16 // references within references
	maxInlined     = 4 * MaxBytes
)

// inline returns a schema with its local references replaced by their targets, and without
// definitions. The agent's schema has been compiled, so every reference has a target.
func (c *conversion) inline(raw []byte, pointer string, depth int) []byte {
	if jsontext.Value(raw).Kind() != '{' {
		return raw
	}
	var out []member
	var target []byte
	for _, m := range membersOf(raw) {
		p := at(pointer, m.name)
		switch m.name {
		case "$defs", "definitions", "$id", "$schema", "$anchor", "$comment":
		case "$ref":
			target = c.target(textOf(m.value), p)
		case "enum", "const", "default", "examples", "required", "dependentRequired", extension:
			out = append(out, m)
		case "properties", "patternProperties", "dependentSchemas":
			subs := membersOf(m.value)
			for i := range subs {
				subs[i].value = c.inline(subs[i].value, at(p, subs[i].name), depth)
			}
			out = append(out, member{m.name, orEmpty(objectOf(subs))})
		default:
			out = append(out, member{m.name, c.inlineAny(m.value, p, depth)})
		}
	}
	c.spent += len(target)
	switch {
	case target == nil:
	case c.spent > maxInlined || depth >= maxInlineDepth:
		if !c.within("") {
			c.add(pointer, "$ref", "give the agent a template of its own", "refers to itself, or its references are too large to write out")
		}
	default:
		out = joined(out, membersOf(c.inline(target, pointer, depth+1)))
	}
	return orEmpty(objectOf(out))
}

// inlineAny is inline for a keyword's value: a schema, a list of schemas, or something else.
func (c *conversion) inlineAny(raw []byte, p string, depth int) []byte {
	if jsontext.Value(raw).Kind() != '[' {
		return c.inline(raw, p, depth)
	}
	b := []byte{'['}
	for i, item := range itemsOf(raw) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, c.inline(item, at(p, i), depth)...)
	}
	return append(b, ']')
}

// joined merges a reference's target with the members beside the reference. Annotations beside the
// reference take precedence. If both use the same keyword to constrain the value, the target
// becomes a part of allOf.
func joined(own, target []member) []member {
	names := map[string]bool{}
	for _, m := range own {
		names[m.name] = true
	}
	var rest []member
	for _, m := range target {
		switch {
		case !names[m.name]:
			rest = append(rest, m)
		case m.name == "title", m.name == "description", m.name == "default", m.name == "deprecated", m.name == "examples":
		default:
			all := []byte{'['}
			all = append(all, orEmpty(objectOf(target))...)
			for i := range own {
				if own[i].name == "allOf" {
					for _, item := range itemsOf(own[i].value) {
						all = append(append(all, ','), item...)
					}
					own[i].value = append(all, ']')
					return own
				}
			}
			return append(own, member{"allOf", append(all, ']')})
		}
	}
	return append(own, rest...)
}

// target returns the schema that a reference refers to.
func (c *conversion) target(ref, p string) []byte {
	pointer, ok := strings.CutPrefix(ref, "#")
	if pointer, err := url.PathUnescape(pointer); ok && err == nil && (pointer == "" || pointer[0] == '/') {
		at := c.root
		for token := range jsontext.Pointer(pointer).Tokens() {
			at = child(at, token)
		}
		if at != nil {
			return at
		}
	}
	c.add(p, "$ref", "refer to a place in the same schema by a JSON pointer, for instance #/$defs/address", "is a reference of a kind that cannot be written out")
	return nil
}

// child returns a member or an item of a value; nil if there is none.
func child(raw []byte, token string) []byte {
	if value := memberOf(membersOf(raw), token); value != nil {
		return value
	}
	items := itemsOf(raw)
	if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(items) {
		return items[i]
	}
	return nil
}

func orEmpty(raw []byte) []byte {
	if raw == nil {
		return []byte("{}")
	}
	return raw
}

package template

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/intents/schema"
)

// property returns the key's name for the agent's handler.
func (k *Key) property() string {
	if k.Property != "" {
		return k.Property
	}
	return k.Name
}

// refusedKeywords are refused in a value_schema: it becomes a part of the schema of a whole
// payload, where references would have another meaning.
var refusedKeywords = map[string]bool{"$ref": true, "$id": true, "$schema": true, "$anchor": true, "$defs": true, "definitions": true,
	"$dynamicRef": true, "$dynamicAnchor": true, "$recursiveRef": true, "$recursiveAnchor": true, "$vocabulary": true}

// valueSchema adds the problems of a key's value_schema that are visible without compiling it: its
// form, references, and a contradiction to key_type at its top. [report.values] compiles it.
func (r *report) valueSchema(k *Key, p string) {
	r.canonicalValue(p+"/default_value", k.Default)
	if p += "/value_schema"; len(k.Value) == 0 {
		return
	}
	if len(k.Value) > maxValueSchema {
		r.add(p, "limit", remedies["limit"], "has more than %d bytes", maxValueSchema)
		return
	}
	if jsontext.Value(k.Value).Kind() != '{' {
		r.add(p, "type", remedies["value_schema"], "must be object")
		return
	}
	r.canonicalValue(p, k.Value)
	r.seen(p, k.Value)
	walkSchema(k.Value, p, func(pointer string, m member) {
		if refusedKeywords[m.name] {
			r.add(at(pointer, m.name), "keyword", "write the schema out where it is used", "%s is not accepted in a value_schema", m.name)
		}
	})
	for _, m := range membersOf(k.Value) {
		switch m.name {
		case "type":
			if !slices.ContainsFunc(typesOf(m.value), k.Type.takes) {
				r.add(p+"/type", "type", "leave type out: key_type has it", "contradicts the key_type %s", quoted(string(k.Type)))
			}
		case "enum", "const":
			items := itemsOf(m.value)
			if m.name == "const" {
				items = [][]byte{m.value}
			}
			for i, item := range items {
				q := at(p, m.name)
				if m.name == "enum" {
					q = at(q, i)
				}
				if !k.Type.fits(item) {
					r.add(q, "type", "write values of the key_type", "is no %s, which the key_type is", string(k.Type))
				}
			}
		default:
			if of := typeOfKeyword[m.name]; of != "" && !k.Type.takes(of) {
				r.add(at(p, m.name), "keyword", "remove it, or correct the key_type", "says nothing about a value of the key_type %s", quoted(string(k.Type)))
			}
		}
	}
}

// takes reports whether values of type other can be values of type t.
func (t Type) takes(other Type) bool {
	return t == other || t == Integer && other == Number || t == Number && other == Integer
}

// fits reports whether a JSON value is of the type.
func (t Type) fits(raw []byte) bool {
	switch jsontext.Value(raw).Kind() {
	case 'n':
		return t == Null
	case 't', 'f':
		return t == Boolean
	case '"':
		return t == String
	case '{':
		return t == Object
	case '[':
		return t == Array
	case '0':
		return t == Number || t == Integer // the compiled schema refuses fractions
	}
	return false
}

// typeOfKeyword has the type to which a keyword of JSON Schema applies.
var typeOfKeyword = func() map[string]Type {
	m := map[string]Type{}
	for t, keywords := range map[Type]string{
		String: "minLength maxLength pattern format contentEncoding contentMediaType",
		Number: "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf",
		Array:  "items prefixItems additionalItems contains minContains maxContains minItems maxItems uniqueItems unevaluatedItems",
		Object: "properties patternProperties additionalProperties propertyNames required minProperties maxProperties dependentRequired dependentSchemas unevaluatedProperties",
	} {
		for _, keyword := range strings.Fields(keywords) {
			m[keyword] = t
		}
	}
	return m
}()

// values compiles the schema of the values of all sound keys, and checks the defaults. If the
// schema does not compile, it compiles the keys one by one, so that one bad key does not hide
// problems of others.
func (r *report) values(keys []Key, sound []bool, pointer string) *schema.Schema {
	s, err := schema.Compile(valuesSchema(keys, sound))
	if err != nil {
		before := len(r.problems)
		for i := range keys {
			only := make([]bool, len(keys))
			if only[i] = true; !sound[i] || len(keys[i].Value) == 0 && isNull(keys[i].Default) {
				continue
			}
			if s, err := schema.Compile(valuesSchema(keys, only)); err != nil {
				r.refusedValue(&keys[i], at(pointer, i), err)
			} else {
				r.defaults(s, keys, only, pointer)
			}
		}
		if len(r.problems) == before {
			r.refusedSchema(pointer, err) // each compiles, but together they are too large
		}
		return nil
	}
	r.defaults(s, keys, sound, pointer)
	return s
}

// defaults checks the defaults of sound keys.
func (r *report) defaults(s *schema.Schema, keys []Key, sound []bool, pointer string) {
	for i := range keys {
		if !sound[i] || isNull(keys[i].Default) || keys[i].Name == Other {
			continue
		}
		var bad *schema.ValidationError
		if errors.As(s.Validate(one(keys[i].Name, keys[i].Default)), &bad) {
			for _, q := range bad.Problems {
				rest := strings.TrimPrefix(q.Pointer, "/"+keys[i].Name)
				r.add(at(pointer, i)+"/default_value"+rest, q.Keyword, "write a default that fits the key, or none", "%s", q.Message)
			}
		}
	}
}

// valuesSchema returns a JSON Schema of an object with the sound keys. No key is required, and
// other names are not restricted.
func valuesSchema(keys []Key, sound []bool) []byte {
	b := []byte(`{"type":"object","properties":{`)
	b = append(b, `"other":{"type":["string","array"],"items":{"type":"string"}}`...)
	for i := range keys {
		k := &keys[i]
		if k.Name == Other || !sound[i] {
			continue
		}
		b = append(append(b, ','), quoteJSON(k.Name)...)
		b = append(append(b, `:{"type":`...), quoteJSON(string(k.Type))...)
		switch members := membersOf(k.Value); {
		case len(members) == 0:
		case memberOf(members, "type") != nil:
			b = append(append(append(b, `,"allOf":[`...), k.Value...), ']')
		default:
			b = appendMembers(b, members)
		}
		b = append(b, '}')
	}
	return append(b, `}}`...)
}

// appendMembers appends members to an object that has one already.
func appendMembers(b []byte, members []member) []byte {
	for _, m := range members {
		b = append(append(append(append(b, ','), quoteJSON(m.name)...), ':'), m.value...)
	}
	return b
}

// refusedValue adds the compiler's problems with the schema of one key's values.
func (r *report) refusedValue(k *Key, p string, err error) {
	var refused *schema.Error
	if !errors.As(err, &refused) {
		r.add(p+"/value_schema", "schema", remedies["value_schema"], "does not compile")
		return
	}
	for _, q := range refused.Problems {
		rest := strings.TrimPrefix(q.Pointer, "/properties/"+k.Name)
		if memberOf(membersOf(k.Value), "type") != nil {
			rest = strings.TrimPrefix(rest, "/allOf/0")
		}
		r.add(p+"/value_schema"+rest, q.Keyword, "write a JSON Schema that compiles", "%s", q.Message)
	}
	r.truncated = r.truncated || refused.Truncated
}

// one returns an object of one member.
func one(name string, value []byte) stdjson.RawMessage {
	b := append([]byte{'{'}, quoteJSON(name)...)
	return append(append(append(b, ':'), value...), '}')
}

// walkSchema calls f for every keyword of a JSON Schema and of its subschemas. It does not descend
// into data, such as the values of enum and of the author's own keywords (x-). The names of
// properties are not keywords.
func walkSchema(raw []byte, pointer string, f func(pointer string, m member)) {
	for _, m := range membersOf(raw) {
		f(pointer, m)
		if strings.HasPrefix(m.name, "x-") {
			continue
		}
		p := at(pointer, m.name)
		switch m.name {
		case "enum", "const", "default", "examples", "required", "dependentRequired":
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
			for _, sub := range membersOf(m.value) {
				walkSchema(sub.value, at(p, sub.name), f)
			}
		default:
			walkAny(m.value, p, f)
		}
	}
}

// walkAny walks a keyword's value: a schema, a list of schemas, or something else.
func walkAny(raw []byte, p string, f func(pointer string, m member)) {
	switch jsontext.Value(raw).Kind() {
	case '{':
		walkSchema(raw, p, f)
	case '[':
		for i, item := range itemsOf(raw) {
			if jsontext.Value(item).Kind() == '{' {
				walkSchema(item, at(p, i), f)
			}
		}
	}
}

// compact returns raw without white space.
func compact(raw []byte) []byte {
	var b bytes.Buffer
	if stdjson.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

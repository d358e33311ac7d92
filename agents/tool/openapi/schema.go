package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/aeemesh/aeemesh/intents/schema"
)

// Limits of one operation's schemas.
const (
	maxSchemas    = 2000      // subschemas
	maxSchemaSize = 128 << 10 // bytes of JSON
	maxEnum       = 500       // values; a longer list is left out
	maxOutput     = 200       // subschemas; a larger output schema is not enforced
	maxLooks      = 100_000   // bounds the properties and parts that are searched for omitted properties
	maxPatterns   = 200_000   // schema.PatternSize of all regular expressions of a description
)

var errSchemas = errors.New("its schemas are too large")

// converter converts an operation's schemas to JSON Schema 2020-12.
type converter struct {
	v30    bool // OpenAPI 3.0: nullable, boolean exclusive bounds
	output bool // of answers: writeOnly properties are left out instead of readOnly ones
	uses   map[*openapi3.Schema]int
	names  map[definition]string
	defs   map[string]any
	left   int
	looks  int
	usable func(pattern string) bool
}

// A definition is a schema in $defs.
type definition struct {
	schema *openapi3.Schema
	less   string // the properties that the schema does not require, because the whole omits them
}

func newConverter(v30, output bool, most int, usable func(pattern string) bool) *converter {
	return &converter{v30: v30, output: output, uses: make(map[*openapi3.Schema]int), names: make(map[definition]string), defs: make(map[string]any), left: most, looks: maxLooks, usable: usable}
}

// usable reports whether a regular expression of the description is passed on:
// not if it is valid in ECMA-262 only, or too large, by itself or together with
// the others.
func (b *builder) usable(pattern string) bool {
	ok, known := b.patterns[pattern]
	if known || b.spent > maxPatterns {
		return ok
	}
	size, err := schema.PatternSize(pattern)
	b.spent += size
	ok = err == nil && size <= schema.MaxPatternSize
	b.patterns[pattern] = ok
	return ok
}

// count counts the references to each schema. A schema with a single reference
// is written inline.
func (c *converter) count(ref *openapi3.SchemaRef) error {
	if ref == nil || ref.Value == nil {
		return nil
	}
	if c.uses[ref.Value]++; c.uses[ref.Value] > 1 {
		return nil
	}
	if c.left--; c.left < 0 {
		return errSchemas
	}
	for _, child := range children(ref.Value) {
		if err := c.count(child); err != nil {
			return err
		}
	}
	return nil
}

// children returns the schemas within a schema.
func children(s *openapi3.Schema) []*openapi3.SchemaRef {
	all := slices.Concat(s.OneOf, s.AnyOf, s.AllOf, s.PrefixItems,
		openapi3.SchemaRefs{s.Not, s.Items, s.Contains, s.PropertyNames, s.If, s.Then, s.Else, s.AdditionalProperties.Schema, s.UnevaluatedItems.Schema, s.UnevaluatedProperties.Schema})
	for _, m := range []openapi3.Schemas{s.Properties, s.PatternProperties, s.DependentSchemas} {
		for _, child := range m {
			all = append(all, child)
		}
	}
	return all
}

// convert returns a schema, or a reference to it in $defs.
func (c *converter) convert(ref *openapi3.SchemaRef) any { return c.part(ref, nil) }

// part is convert for a part of an allOf. Its result does not require the properties that the
// whole omits.
func (c *converter) part(ref *openapi3.SchemaRef, gone map[string]bool) any {
	if ref == nil || ref.Value == nil {
		return true
	}
	if c.uses[ref.Value] < 2 {
		return c.schema(ref.Value, gone)
	}
	less := make(map[string]bool)
	if len(gone) > 0 {
		c.required(ref.Value, gone, less, make(map[*openapi3.Schema]bool))
	}
	key := definition{ref.Value, strings.Join(slices.Sorted(maps.Keys(less)), "\n")}
	name, there := c.names[key]
	if !there {
		base := legal(ref.Ref[strings.LastIndexByte(ref.Ref, '/')+1:], "", 48)
		name = base
		for k := 2; c.defs[name] != nil; k++ {
			name = fmt.Sprintf("%s_%d", base, k)
		}
		c.names[key], c.defs[name] = name, true
		if key.less == "" {
			gone = nil
		}
		c.defs[name] = c.schema(ref.Value, gone)
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

// required adds to less the properties in gone that a schema, or a part of its allOf, requires.
func (c *converter) required(s *openapi3.Schema, gone, less map[string]bool, seen map[*openapi3.Schema]bool) {
	if c.looks -= 1 + len(s.Required); c.looks < 0 || seen[s] {
		return
	}
	seen[s] = true
	for _, name := range s.Required {
		if gone[name] {
			less[name] = true
		}
	}
	for _, r := range s.AllOf {
		if r != nil && r.Value != nil {
			c.required(r.Value, gone, less, seen)
		}
	}
}

// leftOut adds to gone the properties of a schema, and of the parts of its allOf, that do not
// belong into a request, or into an answer.
func (c *converter) leftOut(s *openapi3.Schema, gone map[string]bool, seen map[*openapi3.Schema]bool) {
	if c.looks -= 1 + len(s.Properties); c.looks < 0 || seen[s] {
		return
	}
	seen[s] = true
	for name, r := range s.Properties {
		if r != nil && r.Value != nil && (c.output && r.Value.WriteOnly || !c.output && r.Value.ReadOnly) {
			gone[name] = true
		}
	}
	for _, r := range s.AllOf {
		if r != nil && r.Value != nil {
			c.leftOut(r.Value, gone, seen)
		}
	}
}

// schema converts one schema. If it is a part of a whole, gone are the properties that the whole
// omits; otherwise gone is nil.
func (c *converter) schema(s *openapi3.Schema, gone map[string]bool) any {
	if s.Always != nil {
		return *s.Always
	}
	if gone == nil {
		gone = make(map[string]bool)
		c.leftOut(s, gone, make(map[*openapi3.Schema]bool))
	}
	m := make(map[string]any)
	c.words(s, m)
	c.bounds(s, m)
	exact(s, m)
	c.object(s, m, gone)
	for name, refs := range map[string]openapi3.SchemaRefs{"oneOf": s.OneOf, "anyOf": s.AnyOf, "allOf": s.AllOf, "prefixItems": s.PrefixItems} {
		if len(refs) > 0 {
			within := gone
			if name != "allOf" {
				within = nil
			}
			list := make([]any, len(refs))
			for i, r := range refs {
				list[i] = c.part(r, within)
			}
			m[name] = list
		}
	}
	for name, r := range map[string]*openapi3.SchemaRef{"not": s.Not, "items": s.Items, "contains": s.Contains, "if": s.If, "then": s.Then, "else": s.Else} {
		if r != nil {
			m[name] = c.convert(r)
		}
	}
	if c.v30 && s.Nullable {
		return nullable(m)
	}
	return m
}

// nullable makes a schema of 3.0 accept null, too.
func nullable(m map[string]any) any {
	types, ok := m["type"].([]string)
	if one, single := m["type"].(string); single {
		types, ok = []string{one}, true
	}
	if !ok || len(m) > 1 && (m["oneOf"] != nil || m["anyOf"] != nil || m["allOf"] != nil) {
		if len(m) == 0 {
			return m
		}
		return map[string]any{"anyOf": []any{m, map[string]any{"type": "null"}}}
	}
	if !slices.Contains(types, "null") {
		m["type"] = append(slices.Clone(types), "null")
	}
	if enum, ok := m["enum"].([]any); ok && !slices.Contains(enum, nil) {
		m["enum"] = append(slices.Clone(enum), nil)
	}
	return m
}

// words adds the descriptive keywords.
func (c *converter) words(s *openapi3.Schema, m map[string]any) {
	if s.Type != nil && len(*s.Type) > 0 {
		if m["type"] = []string(*s.Type); len(*s.Type) == 1 {
			m["type"] = (*s.Type)[0] // the form that every model understands
		}
	}
	for name, text := range map[string]string{"title": s.Title, "description": s.Description} {
		if text != "" && !c.output {
			m[name] = clipText(text, 1000)
		}
	}
	// Formats are enforced, and answers are often less exact than their
	// descriptions.
	if s.Format != "" && !c.output {
		m["format"] = s.Format
	}
	if len(s.Enum) > 0 && len(s.Enum) <= maxEnum {
		m["enum"] = s.Enum
	}
	if s.Const != nil {
		m["const"] = s.Const
	}
	if s.Default != nil && !c.output {
		m["default"] = s.Default
	}
	if s.Pattern != "" && c.usable(s.Pattern) {
		m["pattern"] = s.Pattern
	}
}

// bounds adds the keywords that bound numbers, strings and arrays.
func (c *converter) bounds(s *openapi3.Schema, m map[string]any) {
	for name, n := range map[string]*float64{"minimum": s.Min, "maximum": s.Max, "multipleOf": s.MultipleOf, "exclusiveMinimum": s.ExclusiveMin.Value, "exclusiveMaximum": s.ExclusiveMax.Value} {
		if n != nil && (name != "multipleOf" || *n > 0) {
			m[name] = *n
		}
	}
	if s.ExclusiveMin.IsTrue() && s.Min != nil {
		delete(m, "minimum")
		m["exclusiveMinimum"] = *s.Min
	}
	if s.ExclusiveMax.IsTrue() && s.Max != nil {
		delete(m, "maximum")
		m["exclusiveMaximum"] = *s.Max
	}
	for name, n := range map[string]uint64{"minLength": s.MinLength, "minItems": s.MinItems, "minProperties": s.MinProps} {
		if n > 0 {
			m[name] = n
		}
	}
	for name, n := range map[string]*uint64{"maxLength": s.MaxLength, "maxItems": s.MaxItems, "maxProperties": s.MaxProps, "minContains": s.MinContains, "maxContains": s.MaxContains} {
		if n != nil {
			m[name] = *n
		}
	}
	if s.UniqueItems {
		m["uniqueItems"] = true
	}
}

// object adds the keywords of objects, and the others with schemas by name.
func (c *converter) object(s *openapi3.Schema, m map[string]any, gone map[string]bool) {
	dropped := 0
	properties := make(map[string]any)
	for name, r := range s.Properties {
		if r != nil && r.Value != nil && (c.output && r.Value.WriteOnly || !c.output && r.Value.ReadOnly) {
			dropped++
			continue
		}
		properties[name] = c.convert(r)
	}
	if len(properties) > 0 {
		m["properties"] = properties
	}
	var required []string
	for _, name := range s.Required {
		if !gone[name] && !slices.Contains(required, name) {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		m["required"] = required
	}
	patterns := make(map[string]any)
	for pattern, r := range s.PatternProperties {
		if c.usable(pattern) {
			patterns[pattern] = c.convert(r)
		}
	}
	if len(patterns) > 0 {
		m["patternProperties"] = patterns
	}
	dependent := make(map[string]any)
	for name, r := range s.DependentSchemas {
		dependent[name] = c.convert(r)
	}
	if len(dependent) > 0 {
		m["dependentSchemas"] = dependent
	}
	if len(s.DependentRequired) > 0 {
		m["dependentRequired"] = s.DependentRequired
	}
	if s.PropertyNames != nil {
		m["propertyNames"] = c.convert(s.PropertyNames)
	}
	// Keywords that forbid what is not listed may be kept only if nothing was
	// left out.
	complete := dropped == 0 && len(patterns) == len(s.PatternProperties)
	for name, b := range map[string]openapi3.BoolSchema{"additionalProperties": s.AdditionalProperties, "unevaluatedItems": s.UnevaluatedItems, "unevaluatedProperties": s.UnevaluatedProperties} {
		switch {
		case b.Schema != nil && (complete || !c.output):
			m[name] = c.convert(b.Schema)
		case b.Has != nil && (complete || !c.output):
			m[name] = *b.Has
		}
	}
}

// finish adds the $defs, and checks the size.
func (c *converter) finish(schema map[string]any) (json.RawMessage, error) {
	if len(c.defs) > 0 {
		schema["$defs"] = c.defs
	}
	raw, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxSchemaSize {
		return nil, errSchemas
	}
	return raw, nil
}

// plainOutput returns the schema that results are validated against: that of
// the operation's only successful answer, if it is JSON and the schema is an
// object or an array without alternatives. nil: any result is valid.
func plainOutput(op *openapi3.Operation, v30 bool, usable func(pattern string) bool) json.RawMessage {
	if op.Responses == nil {
		return nil
	}
	var schema *openapi3.SchemaRef
	for status, r := range op.Responses.Map() {
		if !strings.HasPrefix(status, "2") {
			continue
		}
		if schema != nil || r == nil || r.Value == nil || len(r.Value.Content) != 1 {
			return nil
		}
		for kind, media := range r.Value.Content {
			if !isJSON(kind) || media == nil || media.Schema == nil {
				return nil
			}
			schema = media.Schema
		}
	}
	if schema == nil || schema.Value == nil || !schema.Value.Type.Is("object") && !schema.Value.Type.Is("array") {
		return nil
	}
	c := newConverter(v30, true, maxOutput, usable)
	if c.count(schema) != nil {
		return nil
	}
	for s := range c.uses {
		if len(s.OneOf)+len(s.AnyOf)+len(s.AllOf) > 0 || s.Not != nil || s.If != nil || s.Discriminator != nil || s.DynamicRef != "" {
			return nil
		}
	}
	m, ok := c.convert(schema).(map[string]any)
	if !ok {
		return nil
	}
	if raw, err := c.finish(m); err == nil {
		return raw
	}
	return nil
}

// isJSON reports whether a media type is JSON.
func isJSON(kind string) bool {
	kind, _, _ = strings.Cut(strings.ToLower(kind), ";")
	kind = strings.TrimSpace(kind)
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// clipText truncates an untrusted text, and removes characters that are not printable.
func clipText(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == 0xFFFD {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if runes := []rune(strings.TrimSpace(text)); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return strings.TrimSpace(text)
}

package template

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// within reports whether every value that fits the JSON Schema narrow also fits wide. It compares
// keyword by keyword, and returns false if it cannot decide.
func within(narrow, wide []byte) bool {
	if sameJSON(narrow, wide) || isNull(wide) || string(wide) == "true" || string(narrow) == "false" {
		return true
	}
	if jsontext.Value(wide).Kind() != '{' {
		return false
	}
	have := keywordsOf(narrow)
	if items := enumOf(have); items != nil {
		s, err := schema.Compile(wide)
		return err == nil && !slices.ContainsFunc(items, func(item []byte) bool { return s.Validate(item) != nil })
	}
	all := keywordsOf(wide)
	for name, value := range all {
		if !implied(name, value, have, all) {
			return false
		}
	}
	return true
}

// divisible reports whether the parts of a JSON Schema have the same meaning by themselves as in
// the whole, so that [within] may compare them: references lead to $defs, which are compared as
// one, and keywords beside a reference count.
func divisible(raw []byte) bool {
	ok := true
	walkSchema(raw, "", func(_ string, m member) {
		switch m.name {
		case "$ref":
			ok = ok && strings.HasPrefix(textOf(m.value), "#/$defs/")
		case "$schema":
			ok = ok && strings.Contains(textOf(m.value), "/draft/2020-12/")
		case "$id":
			ok = false
		}
	})
	return ok
}

func keywordsOf(raw []byte) map[string][]byte {
	out := map[string][]byte{}
	for _, m := range membersOf(raw) {
		out[m.name] = m.value
	}
	return out
}

// enumOf returns the values that a schema lists as the only valid ones; nil if it lists none.
func enumOf(keywords map[string][]byte) [][]byte {
	if value := keywords["const"]; value != nil {
		return [][]byte{value}
	}
	return itemsOf(keywords["enum"])
}

// implied reports whether every value that fits the keywords have also fits the keyword name, which
// is one of the keywords among of another schema.
func implied(name string, value []byte, have, among map[string][]byte) bool {
	same := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !sameJSON(have[n], among[n]) })
	}
	switch name {
	case "title", "description", "$comment", "examples", "default", "readOnly", "writeOnly", "deprecated":
		return true
	case "type":
		return !slices.ContainsFunc(typesOf(have[name]), func(t Type) bool {
			return !slices.ContainsFunc(typesOf(value), func(of Type) bool { return t == of || t == Integer && of == Number })
		}) && len(have[name]) > 0
	case "minimum", "exclusiveMinimum":
		least, strict, ok := bound(have, "minimum", "exclusiveMinimum", 1)
		want, is := numberOf(value)
		return ok && is && (least > want || least == want && (strict || name == "minimum"))
	case "maximum", "exclusiveMaximum":
		most, strict, ok := bound(have, "maximum", "exclusiveMaximum", -1)
		want, is := numberOf(value)
		return ok && is && (most < want || most == want && (strict || name == "maximum"))
	case "minLength", "minItems", "minProperties":
		n, ok := numberOf(have[name])
		want, is := numberOf(value)
		return is && (want == 0 || ok && n >= want)
	case "maxLength", "maxItems", "maxProperties":
		n, ok := numberOf(have[name])
		want, is := numberOf(value)
		return ok && is && n <= want
	case "contains", "minContains", "maxContains":
		return same("contains", "minContains", "maxContains")
	case "unevaluatedProperties", "unevaluatedItems":
		return false // their effect depends on the whole schema
	case "propertyNames":
		return within(have[name], value)
	case "items":
		return same("prefixItems") && within(have[name], value)
	case "additionalProperties": // it applies to names that the schema itself does not list
		listed := keywordsOf(among["properties"])
		for own := range keywordsOf(have["properties"]) {
			if _, there := listed[own]; !there {
				return false
			}
		}
		return same("patternProperties") && within(have[name], value)
	case "properties":
		there := keywordsOf(have[name])
		return !slices.ContainsFunc(membersOf(value), func(m member) bool {
			own, listed := there[m.name]
			if !listed && have["patternProperties"] == nil {
				own = have["additionalProperties"]
			}
			return !within(own, m.value)
		})
	case "required":
		there := itemsOf(have[name])
		return !slices.ContainsFunc(itemsOf(value), func(n []byte) bool {
			return !slices.ContainsFunc(there, func(t []byte) bool { return textOf(t) == textOf(n) })
		})
	}
	return strings.HasPrefix(name, "x-") || sameJSON(have[name], value)
}

// typesOf reads the value of the keyword "type".
func typesOf(raw []byte) []Type {
	if one := textOf(raw); one != "" {
		return []Type{Type(one)}
	}
	var out []Type
	for _, item := range itemsOf(raw) {
		out = append(out, Type(textOf(item)))
	}
	return out
}

// bound returns the stricter of two limits, and whether the limit itself is excluded; sign is 1 for
// lower limits, -1 for upper ones.
func bound(have map[string][]byte, open, closed string, sign float64) (limit float64, strict, ok bool) {
	limit, ok = numberOf(have[open])
	if x, is := numberOf(have[closed]); is && (!ok || sign*x >= sign*limit) {
		return x, true, true
	}
	return limit, false, ok
}

// numberOf reads a number that a float64 represents exactly.
func numberOf(raw []byte) (float64, bool) {
	if _, err := envelope.Canonical(raw); err != nil {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
	return x, err == nil
}

// sameJSON reports whether two values are equal; a missing value equals null.
func sameJSON(a, b []byte) bool {
	if isNull(a) || isNull(b) {
		return isNull(a) == isNull(b)
	}
	ca, errA := envelope.Canonical(a)
	cb, errB := envelope.Canonical(b)
	return errA == nil && errB == nil && bytes.Equal(ca, cb)
}

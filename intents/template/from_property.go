package template

import (
	"bytes"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
)

// unwrapped returns the members of a property's schema. {"anyOf": [S, {"type": "null"}]}, which
// generators write for an optional value, becomes S.
func unwrapped(members []member) []member {
	for i, m := range members {
		if m.name != "anyOf" && m.name != "oneOf" {
			continue
		}
		var rest []byte
		items := itemsOf(m.value)
		for _, item := range items {
			if inner := membersOf(item); len(inner) != 1 || inner[0].name != "type" || textOf(inner[0].value) != "null" {
				rest = item
			} else {
				items = items[:len(items)-1]
			}
		}
		if len(items) != 1 || rest == nil || len(itemsOf(m.value)) != 2 || jsontext.Value(rest).Kind() != '{' {
			continue
		}
		inner := membersOf(rest)
		out := append([]member(nil), members[:i]...)
		out = append(out, members[i+1:]...)
		for _, o := range out {
			if o.name != "description" && o.name != "title" && o.name != "default" && o.name != "deprecated" && o.name != extension {
				return members
			}
			inner = slices.DeleteFunc(inner, func(m member) bool { return m.name == o.name })
		}
		return append(out, inner...)
	}
	return members
}

// inferred returns the type that the other keywords of a schema imply, "" if they imply
// none or several.
func inferred(members []member) Type {
	types := map[Type]bool{}
	for _, m := range members {
		switch m.name {
		case "enum", "const":
			items := [][]byte{m.value}
			if m.name == "enum" {
				items = itemsOf(m.value)
			}
			for _, item := range items {
				types[kindOf(item)] = true
			}
		default:
			if of := typeOfKeyword[m.name]; of != "" {
				types[of] = true
			}
		}
	}
	if len(types) == 2 && types[Integer] && types[Number] {
		return Number
	}
	for t := range types {
		if len(types) == 1 {
			return t
		}
	}
	return ""
}

// kindOf returns the type of a JSON value: integer for a number in plain digits.
func kindOf(raw []byte) Type {
	for _, t := range []Type{Null, Boolean, String, Object, Array} {
		if t.fits(raw) {
			return t
		}
	}
	if bytes.ContainsAny(raw, ".eE") {
		return Number
	}
	return Integer
}

// snake returns a property's name in snake_case: departureDate, Departure-Date and
// departure_date are departure_date. It is "" if there is none.
func snake(name string) string {
	runes := []rune(name)
	var b strings.Builder
	for i, c := range runes {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		case c >= 'A' && c <= 'Z':
			before := i > 0 && !isUpper(runes[i-1])
			after := i > 0 && i+1 < len(runes) && runes[i+1] >= 'a' && runes[i+1] <= 'z'
			if before || after {
				b.WriteByte('_')
			}
			b.WriteRune(unicode.ToLower(c))
		case c == '_' || c == '-' || c == ' ' || c == '.':
			b.WriteByte('_')
		default:
			return ""
		}
	}
	parts := strings.FieldsFunc(b.String(), func(c rune) bool { return c == '_' })
	if len(parts) == 0 || parts[0][0] < 'a' {
		return ""
	}
	return strings.Join(parts, "_")
}

func isUpper(c rune) bool { return c >= 'A' && c <= 'Z' }

// generated returns a plain description made from a key's name, type and values.
func generated(k *Key, title string, members []member) string {
	words := title
	if words == "" {
		words = strings.ReplaceAll(k.Name, "_", " ")
		words = strings.ToUpper(words[:1]) + words[1:]
	}
	text := words + ", of type " + string(k.Type) + "."
	for _, m := range members {
		if m.name != "enum" {
			continue
		}
		var values []string
		for _, item := range itemsOf(m.value) {
			s := textOf(item)
			if s == "" {
				s = string(item)
			}
			if len(strings.Join(values, ", "))+len(s) < 1000 {
				values = append(values, s)
			}
		}
		text += " Acceptable values: " + strings.Join(values, ", ") + "."
	}
	return text
}

// plainText returns a JSON string's text with plain line breaks.
func plainText(raw []byte) string { return strings.ReplaceAll(textOf(raw), "\r\n", "\n") }

// objectOf writes members as an object, nil if there are none.
func objectOf(members []member) []byte {
	if len(members) == 0 {
		return nil
	}
	b := appendMembers(nil, members)
	b[0] = '{' // instead of the first comma
	return append(b, '}')
}

package template

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// reservedNames have a special meaning in JavaScript's objects, in which many other agents store
// payloads. Other such names, for instance __proto__, are not in snake_case.
var reservedNames = map[string]bool{"constructor": true, "prototype": true}

// template adds the problems that template.schema.json cannot express, and returns the compiled
// schema of the values, nil if there is a problem with them. Missing members have been reported
// before.
func (r *report) template(t *Template) *schema.Schema {
	r.text("/scenario", t.Scenario, false)
	r.text("/description", t.Description, true)
	r.language("/language", t.Language)
	r.responses("/response_schema", t.ResponseSchema)
	return r.definitions(t.Keys, "/keys")
}

// definitions adds the problems of key definitions.
func (r *report) definitions(keys []Key, pointer string) *schema.Schema {
	first := map[string]int{}
	properties := map[string]string{}
	sound := make([]bool, len(keys))
	for i := range keys {
		k, p := &keys[i], at(pointer, i)
		if k.Name == "" {
			continue
		}
		before := len(r.problems)
		if j, twice := first[k.Name]; twice {
			r.add(p+"/key_name", "unique", "give one of them another name", "%s is the name of key %d, too", quoted(k.Name), j)
		} else {
			first[k.Name] = i
		}
		if name := k.property(); name != "" {
			if other, twice := properties[name]; twice && other != k.Name {
				r.add(p+"/property", "unique", "give one of them another property", "%s is the property of %s, too", quoted(name), quoted(other))
			}
			properties[name] = k.Name
		}
		r.key(k, p)
		sound[i] = len(r.problems) == before && !r.within(p)
	}
	return r.values(keys, sound, pointer)
}

// key adds the problems of one key that do not depend on others.
func (r *report) key(k *Key, p string) {
	if reservedNames[k.Name] {
		r.add(p+"/key_name", "reserved", "choose another name", "%s is reserved in JavaScript's objects", quoted(k.Name))
	}
	r.text(p+"/semantic_description", k.Description, true)
	if k.Description != "" && strings.TrimSpace(k.Description) == "" {
		r.add(p+"/semantic_description", "text", remedies["semantic_description"], "has no text")
	}
	r.text(p+"/property", k.Property, false)
	seen := map[string]bool{}
	for _, tag := range slices.Sorted(maps.Keys(k.Descriptions)) {
		q := p + at("/semantic_descriptions", tag)
		canonical := r.language(q, tag)
		if seen[canonical] {
			r.add(q, "unique", "keep one of them", "the language is there twice")
		}
		seen[canonical] = true
		r.text(q, k.Descriptions[tag], true)
	}
	if len(k.Default) > maxDefault {
		r.add(p+"/default_value", "limit", remedies["limit"], "has more than %d bytes", maxDefault)
	}
	if k.Name == Other {
		r.other(k, p)
	}
	r.valueSchema(k, p)
}

// other adds the problems of the key "other" (SDSI 4.3).
func (r *report) other(k *Key, p string) {
	if k.Required {
		r.add(p+"/required", "other", "write false", "the key other is always optional (SDSI 4.3)")
	}
	if k.Type != String && k.Type != Array && k.Type != "" {
		r.add(p+"/key_type", "other", "write string or array", "the key other is a string or an array of strings (SDSI 4.3)")
	}
	if !isNull(k.Default) {
		r.add(p+"/default_value", "other", "remove it", "the key other has no default: it has the words that fit no other key")
	}
	if len(k.Value) > 0 {
		r.add(p+"/value_schema", "other", "remove it", "the key other is always accepted (SDSI 4.3), so nothing can constrain it")
	}
	if k.Experimental || k.Deprecated {
		r.add(p, "other", "remove experimental and deprecated", "the key other is in every template (SDSI 4.3)")
	}
	if k.Property != "" && k.Property != Other {
		r.add(p+"/property", "other", "remove it", "the key other has no other name")
	}
}

// responses compiles the response schema.
func (r *report) responses(p string, raw []byte) {
	if isNull(raw) {
		return
	}
	r.canonicalValue(p, raw)
	s, err := schema.Compile(raw)
	if err != nil {
		r.refusedSchema(p, err)
	} else if !s.TakesObject() {
		r.add(p, "type", "describe an object", "no object fits it, and a result is always an object")
	}
}

func (r *report) refusedSchema(p string, err error) {
	refused, ok := err.(*schema.Error)
	if !ok {
		r.add(p, "schema", "", "is no JSON Schema")
		return
	}
	for _, q := range refused.Problems {
		r.add(p+q.Pointer, q.Keyword, "write a JSON Schema that compiles", "%s", q.Message)
	}
	r.truncated = r.truncated || refused.Truncated
}

// language adds a problem if tag is not a BCP 47 tag, and returns its canonical form.
func (r *report) language(p, tag string) string {
	if tag == "" {
		return ""
	}
	parsed, err := language.Parse(tag)
	if err != nil || strings.ContainsRune(tag, '_') || parsed == language.Und {
		r.add(p, "language", remedies["language"], "%s is no language tag (BCP 47)", quoted(tag))
		return tag
	}
	return parsed.String()
}

// text adds a problem if s has an invisible character. Such characters can hide instructions to a
// model, or make two names look alike. Line breaks and tabs are allowed if lines is set. The
// joiners U+200C and U+200D are allowed: several scripts need them.
func (r *report) text(p, s string, lines bool) {
	if !utf8.ValidString(s) {
		r.add(p, "text", "write UTF-8", "is not valid UTF-8")
		return
	}
	for _, c := range s {
		if lines && (c == '\n' || c == '\t') || !hidden(c) {
			continue
		}
		r.add(p, "text", "remove it", "has the character %U, which readers do not see", c)
		return
	}
	if !lines && strings.TrimSpace(s) != s {
		r.add(p, "text", "remove the spaces", "begins or ends with a space")
	}
}

// hidden reports whether a character is invisible: controls, marks of direction, tags, variation
// selectors of the supplement, and characters without a meaning of their own.
func hidden(c rune) bool {
	switch {
	case c == '\u200c' || c == '\u200d':
		return false
	case c == '\u2028' || c == '\u2029' || c == utf8.RuneError:
		return true
	case c >= 0xE0100 && c <= 0xE01EF:
		return true
	}
	return unicode.In(c, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs)
}

// canonicalValue adds a problem if raw cannot be put into the canonical form that hashes
// are made of.
func (r *report) canonicalValue(p string, raw []byte) {
	if len(raw) == 0 {
		return
	}
	if _, err := envelope.Canonical(raw); err != nil {
		r.add(p, "number", remedies["number"], "%s", clip.Text(err.Error(), 200))
	}
}

package template

import (
	"bytes"
	"fmt"
	"slices"
)

// A Change is one difference between two versions of a template.
type Change struct {
	// Key is the key's name; "" for the template itself.
	Key  string `json:"key_name,omitempty"`
	What string `json:"what"`
	// Breaking reports whether the new version may refuse payloads of clients of the old one, or
	// answer in a form that they do not know.
	Breaking bool `json:"breaking"`
}

// Compare lists the differences between two templates: first of the templates themselves, then of
// their keys in the order of the new one. It cannot always decide whether every value that fits the
// old JSON Schema fits the new one; if it cannot, the change is Breaking.
func Compare(old, now *Template) []Change {
	old, now = old.Complete(), now.Complete()
	var out []Change
	add := func(breaking bool, format string, args ...any) {
		out = append(out, Change{What: fmt.Sprintf(format, args...), Breaking: breaking})
	}
	if old.SchemaID == now.SchemaID && old.Hash() != now.Hash() {
		add(true, "the schema_id %s has another content: a version never changes, so NEW needs an id of its own", old.SchemaID)
	}
	if old.Scenario != now.Scenario {
		add(true, "scenario %s, was %s", now.Scenario, old.Scenario)
	}
	if old.Description != now.Description {
		add(false, "another description")
	}
	if old.Language != now.Language {
		add(false, "language %s, was %s", orNone(now.Language), orNone(old.Language))
	}
	if !sameJSON(old.ResponseSchema, now.ResponseSchema) {
		results := now.ResponseSchema
		if isNull(results) {
			results = []byte(`{"type":"object"}`) // every result is an object
		}
		add(!divisible(results) || !divisible(old.ResponseSchema) || !within(results, old.ResponseSchema), "another response_schema")
	}
	return append(out, compareKeys(old, now)...)
}

func compareKeys(old, now *Template) []Change {
	var out []Change
	for i := range now.Keys {
		k := &now.Keys[i]
		before := old.Key(k.Name)
		add := func(breaking bool, format string, args ...any) {
			out = append(out, Change{k.Name, fmt.Sprintf(format, args...), breaking})
		}
		if before == nil {
			add(k.Required, "added, %s, %s", k.Type, needed(k))
			continue
		}
		narrower := k.Name != Other && !within(before.schema(), k.schema())
		if before.Type != k.Type {
			add(narrower, "type %s, was %s", k.Type, before.Type)
		}
		if before.Required != k.Required {
			add(k.Required, "%s, was %s", needed(k), needed(before))
		}
		if !sameJSON(before.Default, k.Default) {
			add(false, "default %s, was %s", orNone(string(k.Default)), orNone(string(before.Default)))
		}
		if !sameJSON(before.Value, k.Value) {
			add(narrower, "values %s, were %s", orNone(string(k.Value)), orNone(string(before.Value)))
		}
		if before.Description != k.Description {
			add(false, "another description")
		}
		if tags := differing(before.Descriptions, k.Descriptions); len(tags) > 0 {
			add(false, "another description in %s", bytes.Join(tags, []byte(", ")))
		}
		if before.property() != k.property() {
			add(false, "property %s, was %s", k.property(), before.property())
		}
		for _, flag := range []struct {
			word    string
			was, is bool
		}{{"experimental", before.Experimental, k.Experimental}, {"deprecated", before.Deprecated, k.Deprecated}} {
			if flag.was != flag.is {
				add(false, "%s", map[bool]string{true: flag.word + " now", false: "not " + flag.word + " any more"}[flag.is])
			}
		}
	}
	for _, k := range old.Keys {
		if now.Key(k.Name) == nil {
			out = append(out, Change{k.Name, "removed: what clients send for it goes into other, or is refused", true})
		}
	}
	return out
}

// needed is the word for whether payloads must have the key.
func needed(k *Key) string {
	if k.Required {
		return "required"
	}
	return "optional"
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// differing returns the languages whose texts differ, sorted.
func differing(a, b map[string]string) [][]byte {
	var tags [][]byte
	for tag, text := range a {
		if b[tag] != text {
			tags = append(tags, []byte(tag))
		}
	}
	for tag := range b {
		if _, there := a[tag]; !there {
			tags = append(tags, []byte(tag))
		}
	}
	slices.SortFunc(tags, bytes.Compare)
	return tags
}

// schema returns the JSON Schema of the key's values. If value_schema has a type, too, values must
// have both types.
func (k *Key) schema() []byte {
	members, of := membersOf(k.Value), k.Type
	if types := typesOf(memberOf(members, "type")); of == Number && len(types) > 0 && !slices.Contains(types, Number) {
		of = Integer
	}
	members = slices.DeleteFunc(members, func(m member) bool { return m.name == "type" })
	return append(appendMembers(append([]byte(`{"type":`), quoteJSON(string(of))...), members), '}')
}

package template

import (
	"encoding/json"
	"slices"
)

const maxID = 128

// object returns an object with the members that have a value.
func object(members ...member) json.RawMessage {
	members = slices.DeleteFunc(slices.Clone(members), func(m member) bool { return len(m.value) == 0 })
	return orEmpty(objectOf(members))
}

func text(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	return quoteJSON(s)
}

// marshal encodes a value whose encoding cannot fail; nil if it is empty.
func marshal(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil || string(raw) == "{}" || string(raw) == "[]" || string(raw) == "null" {
		return nil
	}
	return raw
}

// memberOf returns the value of a member, nil if there is none.
func memberOf(members []member, name string) json.RawMessage {
	for _, m := range members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

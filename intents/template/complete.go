package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// otherDescription is the description of the key "other" if the author has left the key out.
const otherDescription = "What the user wants and no other key has a place for, in the user's own words. " +
	"Leave it out if everything has its key."

// Complete returns the template with the key "other". It adds the key at the end if the author has
// left it out (SDSI 4.3: every template has it). It does not change t.
func (t *Template) Complete() *Template {
	c := t.clone()
	if t.Key(Other) == nil {
		c.Keys = append(c.Keys, Key{Name: Other, Type: String, Description: otherDescription})
	}
	return c
}

// Key returns the key with this name, nil if there is none.
func (t *Template) Key(name string) *Key {
	for i := range t.Keys {
		if t.Keys[i].Name == name {
			return &t.Keys[i]
		}
	}
	return nil
}

// clone copies the parts that methods of this package change: the keys and their maps.
func (t *Template) clone() *Template {
	c := *t
	c.Keys = slices.Clone(t.Keys)
	for i := range c.Keys {
		c.Keys[i].Descriptions = maps.Clone(c.Keys[i].Descriptions)
	}
	return &c
}

// Hash returns "sha256:" and the hex digest of the template in the canonical form of RFC 8785. A
// default of null and no default have the same hash, as has a template with and without an
// automatic key "other". It is "" for a template that cannot be encoded as JSON.
func (t *Template) Hash() string {
	c := t.Complete()
	for i := range c.Keys {
		if isNull(c.Keys[i].Default) {
			c.Keys[i].Default = nil
		}
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	return digest(raw)
}

func hashOf(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:])
}

package template

import (
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// UnknownPolicy decides about keys of a payload that the template does not have.
type UnknownPolicy int

const (
	// UnknownToOther moves each of them into "other", as the text "name: value".
	UnknownToOther UnknownPolicy = iota
	// UnknownRefused refuses the payload.
	UnknownRefused
)

// FormOptions are the options of a [Form].
type FormOptions struct {
	// Unknown is the policy for unknown keys. Default: UnknownToOther.
	Unknown UnknownPolicy
	// Withdrawn are keys that patches had before (SDSI 6.2.3). A payload with one of them is
	// accepted with a warning. Keys that the template has, and keys whose name is the property of a
	// key in the template, are ignored.
	Withdrawn []Key
}

// A Form checks payloads against one template. It is safe for concurrent use.
type Form struct {
	template  *Template
	id        string
	keys      []formKey // the template's keys in order, then the withdrawn ones
	byName    map[string]int
	schema    *schema.Schema // of all values; no key is required
	unknown   UnknownPolicy
	required  int  // number of keys that are required
	otherAt   int  // index of "other"
	otherList bool // its key_type is array
	extra     int  // bytes of defaults and other names, at most
}

// A formKey is a key, prepared for checking payloads.
type formKey struct {
	Key
	withdrawn bool
	prefix    []byte // the key's name for the handler as JSON, and a colon
	wants     string // its rule, for messages
}

// NewForm compiles a template, with its active patches applied ([Template.Apply]), for the
// check of payloads. The error is that of [Template.Validate].
func NewForm(t *Template, o FormOptions) (*Form, error) {
	all := t.Complete()
	s, err := all.compile()
	if err != nil {
		return nil, err
	}
	own := len(all.Keys)
	for _, k := range o.Withdrawn {
		k.Required, k.Default = false, nil
		if !slices.ContainsFunc(all.Keys, func(x Key) bool { return x.Name == k.Name || x.property() == k.property() }) {
			all.Keys = append(all.Keys, k)
		}
	}
	if len(all.Keys) > own { // even beyond the limits of a template, because clients may still send them
		if s, err = schema.Compile(valuesSchema(all.Keys, slices.Repeat([]bool{true}, len(all.Keys)))); err != nil {
			return nil, err
		}
	}
	f := &Form{template: t.Complete(), id: t.SchemaID, byName: make(map[string]int, len(all.Keys)), schema: s, unknown: o.Unknown}
	for i, k := range all.Keys {
		if isNull(k.Default) || k.Required {
			k.Default = nil
		}
		if k.Default != nil {
			k.Default = compact(k.Default)
		}
		fk := formKey{Key: k, withdrawn: i >= own, prefix: append(quoteJSON(k.property()), ':'), wants: k.wants()}
		f.byName[k.Name] = i
		if k.Default != nil || k.Property != "" {
			f.extra += len(fk.prefix) + len(k.Default) + 1
		}
		if k.Required {
			f.required++
		}
		if k.Name == Other {
			f.otherAt, f.otherList = i, k.Type == Array
		}
		f.keys = append(f.keys, fk)
	}
	return f, nil
}

// wants describes in a few words what the key's value must be.
func (k *Key) wants() string {
	text := "a " + string(k.Type)
	switch k.Type {
	case Integer, Object, Array:
		text = "an " + string(k.Type)
	case Null:
		text = "null"
	}
	if k.Name == Other {
		text = "a string or an array of strings"
	}
	if len(k.Value) > 0 {
		return fmt.Sprintf("%s that fits %s (%s)", text, clip.Text(string(compact(k.Value)), 300), needed(k))
	}
	return fmt.Sprintf("%s (%s)", text, needed(k))
}

// Template returns the template of the form.
func (f *Form) Template() *Template { return f.template }

package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// ReferenceType is the only type that a reference to an envelope may have
// (AEE, "The payload.references Array").
const ReferenceType = "aee.envelope"

// Reference points at an earlier envelope instead of embedding it.
type Reference struct {
	ID      string `json:"id"`                // the referenced envelope's id
	Corr    string `json:"corr,omitempty"`    // its corr, for context
	Type    string `json:"type"`              // [ReferenceType]
	Locator string `json:"locator,omitempty"` // a URI or path where it can be had
	Hash    string `json:"hash,omitempty"`    // its [Envelope.Hash]
}

// Refer makes a reference to e. The locator is the entity that can be asked
// for it with aee.context.fetch, or empty.
func (e *Envelope) Refer(locator string) (Reference, error) {
	hash, err := e.Hash()
	if err != nil {
		return Reference{}, fmt.Errorf("refer to %s: %w", e.ID, err)
	}
	return Reference{ID: e.ID, Corr: e.Corr, Type: ReferenceType, Locator: locator, Hash: hash}, nil
}

// References reads payload.references; nil where there are none. A reference
// without id or with another type than [ReferenceType] is an error, and so is one
// whose members are no texts.
//
// Envelopes that a payload embeds, as archives may, are inert: nothing in this
// module routes or processes them (AEE, "Exception: Archival and Forensic
// Snapshots").
func (e *Envelope) References() ([]Reference, error) {
	if !mayName(e.Payload, referencesMember) {
		return nil, nil
	}
	var refs []Reference
	err := eachMember(e.Payload, func(name, value []byte) error {
		if string(name) != referencesMember || string(value) == "null" {
			return nil
		}
		var items []json.RawMessage
		if err := json.Unmarshal(value, &items); err != nil {
			return fmt.Errorf("payload.references must be an array of reference objects: %w", err)
		}
		refs = make([]Reference, len(items))
		for i, item := range items {
			if err := refs[i].read(item); err != nil {
				return fmt.Errorf("payload.references[%d]%w", i, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refs, nil
}

const referencesMember = "references"

// mayName reports whether a member of raw may have a name: an escaped letter in a name
// or a text might hide it.
func mayName(raw json.RawMessage, name string) bool {
	return bytes.Contains(raw, []byte(`"`+name+`"`)) || bytes.Contains(raw, []byte(`\u`))
}

// read takes one reference object in. Its error continues a sentence about it.
func (r *Reference) read(raw json.RawMessage) error {
	if len(raw) == 0 || raw[0] != '{' {
		return errors.New(" is no object")
	}
	err := eachMember(raw, func(name, value []byte) error {
		for _, m := range []struct {
			name string
			into *string
		}{{"id", &r.ID}, {"corr", &r.Corr}, {"type", &r.Type}, {"locator", &r.Locator}, {"hash", &r.Hash}} {
			if string(name) != m.name || string(value) == "null" {
				continue
			}
			text, ok := stringValue(value)
			if !ok {
				return fmt.Errorf(".%s must be a string", m.name)
			}
			*m.into = text
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case r.ID == "":
		return errors.New(" has no id")
	case r.Type != ReferenceType:
		return fmt.Errorf(" has type %s, want %s", quoteName([]byte(r.Type)), ReferenceType)
	}
	return nil
}

// WithReferences is a payload, a JSON object, whose references have more behind
// them. One to an envelope that is referred to already is left out. The payload
// itself does not change.
func WithReferences(payload json.RawMessage, more ...Reference) (json.RawMessage, error) {
	refs, err := (&Envelope{Payload: payload}).References()
	if err != nil {
		return nil, err
	}
	before := len(refs)
	for _, ref := range more {
		if !slices.ContainsFunc(refs, func(r Reference) bool { return r.ID == ref.ID }) {
			refs = append(refs, ref)
		}
	}
	if len(refs) == before {
		return payload, nil
	}
	if len(payload) == 0 {
		payload = json.RawMessage("{}")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(payload, &members); err != nil || members == nil {
		return nil, fmt.Errorf("a payload with references must be a JSON object: %w", err)
	}
	raw, err := json.Marshal(refs)
	if err != nil {
		return nil, err
	}
	if _, had := members[referencesMember]; had {
		members[referencesMember] = raw
		return json.Marshal(members)
	}
	out := bytes.TrimRight(payload, " \t\r\n")
	out = append(make([]byte, 0, len(out)+len(raw)+16), out[:len(out)-1]...)
	if len(members) > 0 {
		out = append(out, ',')
	}
	out = append(out, `"references":`...)
	return append(append(out, raw...), '}'), nil
}

// KeepReferences is a payload, a JSON object, with those of its references alone that
// keep says yes to, and without the member where none is left. All else stays as it is,
// in its order. Where all stay, or the references cannot be read, it is the payload
// itself.
func KeepReferences(payload json.RawMessage, keep func(Reference) bool) json.RawMessage {
	refs, err := (&Envelope{Payload: payload}).References()
	if err != nil || !slices.ContainsFunc(refs, func(r Reference) bool { return !keep(r) }) {
		return payload
	}
	kept, err := json.Marshal(slices.DeleteFunc(refs, func(r Reference) bool { return !keep(r) }))
	if err != nil {
		return payload
	}
	out := []byte{'{'}
	err = eachMember(payload, func(name, value []byte) error {
		if string(name) == referencesMember {
			if value = kept; string(kept) == "[]" {
				return nil
			}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(AppendString(out, string(name)), ':')
		out = append(out, value...)
		return nil
	})
	if err != nil {
		return payload
	}
	return append(out, '}')
}

package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// ReferenceType is the only valid type of a reference to an envelope (AEE, "The
// payload.references Array").
const ReferenceType = "aee.envelope"

// Reference refers to an earlier envelope instead of embedding it.
type Reference struct {
	ID      string `json:"id"`                // the referenced envelope's id
	Corr    string `json:"corr,omitempty"`    // its corr, for context
	Type    string `json:"type"`              // always [ReferenceType]
	Locator string `json:"locator,omitempty"` // a URI or path from which it can be fetched
	Hash    string `json:"hash,omitempty"`    // its [Envelope.Hash]
}

// Refer makes a reference to e. The locator is the entity that answers aee.context.fetch
// for it, or empty.
func (e *Envelope) Refer(locator string) (Reference, error) {
	hash, err := e.Hash()
	if err != nil {
		return Reference{}, fmt.Errorf("refer to %s: %w", e.ID, err)
	}
	return Reference{ID: e.ID, Corr: e.Corr, Type: ReferenceType, Locator: locator, Hash: hash}, nil
}

// References decodes payload.references; nil if there are none. A reference without an
// id, with another type than [ReferenceType], or with a member that is not a string is an
// error.
//
// Envelopes embedded in a payload, as in archives, are inert: nothing in this module
// routes or processes them (AEE, "Exception: Archival and Forensic Snapshots").
func (e *Envelope) References() ([]Reference, error) {
	refs, _, err := readReferences(e.Payload)
	return refs, err
}

// readReferences decodes the references of a payload, and returns their JSON, too: it can
// have members that a Reference does not have.
func readReferences(payload json.RawMessage) (refs []Reference, items []json.RawMessage, err error) {
	if !mayHaveMember(payload, referencesMember) {
		return nil, nil, nil
	}
	return searchReferences(payload)
}

// searchReferences is readReferences for a payload that may have some. It is a function of its own
// because its results are allocated, also where there are none.
func searchReferences(payload json.RawMessage) (refs []Reference, items []json.RawMessage, err error) {
	err = eachMember(payload, func(name, value []byte) error {
		if string(name) != referencesMember || string(value) == "null" {
			return nil
		}
		if err := json.Unmarshal(value, &items); err != nil {
			return errors.New("payload.references must be an array of reference objects")
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
		return nil, nil, err
	}
	return refs, items, nil
}

const referencesMember = "references"

// mayHaveMember reports whether raw may have a member with this name. It also returns
// true for every text with \u escapes, which might spell the name.
func mayHaveMember(raw json.RawMessage, name string) bool {
	return bytes.Contains(raw, []byte(`"`+name+`"`)) || bytes.Contains(raw, []byte(`\u`))
}

// read decodes one reference object. Its error text continues "payload.references[i]".
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

// WithReferences returns a copy of a payload, a JSON object, with more references
// appended. It leaves out references to envelopes that are referred to already.
func WithReferences(payload json.RawMessage, more ...Reference) (json.RawMessage, error) {
	refs, items, err := readReferences(payload)
	if err != nil {
		return nil, err
	}
	before := len(refs)
	for _, ref := range more {
		if !slices.ContainsFunc(refs, func(r Reference) bool { return r.ID == ref.ID }) {
			item, err := json.Marshal(ref)
			if err != nil {
				return nil, err
			}
			refs, items = append(refs, ref), append(items, item)
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
	raw := arrayOf(items)
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

// KeepReferences returns a payload, a JSON object, with only those references for which
// keep returns true, and without the member if none is left. Everything else stays, in
// its order. If all references stay, or they cannot be decoded, it returns the payload
// itself.
func KeepReferences(payload json.RawMessage, keep func(Reference) bool) json.RawMessage {
	refs, items, err := readReferences(payload)
	if err != nil {
		return payload
	}
	var left []json.RawMessage
	for i, r := range refs {
		if keep(r) {
			left = append(left, items[i])
		}
	}
	if len(left) == len(items) {
		return payload
	}
	out := []byte{'{'}
	err = eachMember(payload, func(name, value []byte) error {
		if string(name) == referencesMember {
			if len(left) == 0 {
				return nil
			}
			value = arrayOf(left)
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

// arrayOf returns the JSON array of the items.
func arrayOf(items []json.RawMessage) json.RawMessage {
	out := []byte{'['}
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, ']')
}

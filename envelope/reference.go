package envelope

import (
	"encoding/json"
	"fmt"
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
// without id or with another type than [ReferenceType] is an error.
//
// Envelopes that a payload embeds, as archives may, are inert: nothing in this
// module routes or processes them (AEE, "Exception: Archival and Forensic
// Snapshots").
func (e *Envelope) References() ([]Reference, error) {
	var refs []Reference
	err := eachMember(e.Payload, func(name, value []byte) error {
		if string(name) != "references" {
			return nil
		}
		if err := json.Unmarshal(value, &refs); err != nil {
			return fmt.Errorf("payload.references must be an array of reference objects: %w", err)
		}
		for i, ref := range refs {
			if ref.ID == "" {
				return fmt.Errorf("payload.references[%d] has no id", i)
			}
			if ref.Type != ReferenceType {
				return fmt.Errorf("payload.references[%d] has type %q, want %q", i, ref.Type, ReferenceType)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refs, nil
}

package intents

import "encoding/json"

// EvidenceRefsMember is where a result's payload says what it rests on, where
// requires.evidence asks for it: a list of texts, of which none is empty.
const EvidenceRefsMember = "evidence_refs"

// ClosedTo reports whether a schema plainly allows no member of this name in an
// object. A nil schema allows all.
func ClosedTo(s *Schema, member string) bool {
	if s == nil {
		return false
	}
	var top struct {
		Additional any                        `json:"additionalProperties"`
		Patterns   map[string]json.RawMessage `json:"patternProperties"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(s.JSON(), &top) != nil {
		return false
	}
	_, named := top.Properties[member]
	return top.Additional == false && !named && len(top.Patterns) == 0
}

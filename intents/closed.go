package intents

import "encoding/json"

// EvidenceRefsMember is the member of a result's payload that names its evidence, if the
// task set requires.evidence: a list of non-empty strings.
const EvidenceRefsMember = "evidence_refs"

// ClosedTo reports whether the top level of a schema forbids a member of this name in an
// object. A nil schema allows everything.
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

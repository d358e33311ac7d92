package intents

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/aeemesh/aeemesh/intents/schema"
)

// EvidenceLevel is how much account of itself a task asks for, by
// requires.decision_evidence (extension aee.ext.decision_evidence). The result's
// payload gives it in an object decision_evidence.
type EvidenceLevel string

// The levels. Each demands what the one before it does, and more. Lists may be
// empty where there was nothing to list, but they must be there.
const (
	EvidenceNone     EvidenceLevel = "none"     // nothing; what stands under the name is not looked at
	EvidenceMinimal  EvidenceLevel = "minimal"  // decision and reason_summary, neither of them empty
	EvidenceStandard EvidenceLevel = "standard" // and inputs_used, tools_used, action_taken, confidence
	EvidenceFull     EvidenceLevel = "full"     // and context_refs: ids or locators, none of them empty
)

// EvidenceMember is where in a result's payload the evidence stands.
const EvidenceMember = "decision_evidence"

// DecisionEvidence is the object itself. A nil list and a nil Confidence are
// left out on the wire; an empty list that is not nil is written.
type DecisionEvidence struct {
	InputsUsed    []string `json:"inputs_used,omitzero"`
	ContextRefs   []string `json:"context_refs,omitzero"`
	ToolsUsed     []string `json:"tools_used,omitzero"`
	Decision      string   `json:"decision,omitzero"`
	ReasonSummary string   `json:"reason_summary,omitzero"`
	ActionTaken   string   `json:"action_taken,omitzero"`
	Confidence    *float64 `json:"confidence,omitzero"` // 0 to 1
}

//go:embed decision-evidence.schema.json
var evidenceSchema []byte

// EvidenceSchema is the schema of the object itself, whatever the level.
func EvidenceSchema() json.RawMessage { return append(json.RawMessage(nil), evidenceSchema...) }

// ParseEvidenceLevel reads a level; "" is none. Anything else that is no level is an error.
func ParseEvidenceLevel(s string) (EvidenceLevel, error) {
	switch l := EvidenceLevel(s); l {
	case "":
		return EvidenceNone, nil
	case EvidenceNone, EvidenceMinimal, EvidenceStandard, EvidenceFull:
		return l, nil
	}
	return "", fmt.Errorf("decision_evidence is %s; it must be none, minimal, standard or full", quoted(s))
}

// demands are the members that each level adds to the one before.
var demands = []struct {
	level   EvidenceLevel
	members []string
}{
	{EvidenceMinimal, []string{"decision", "reason_summary"}},
	{EvidenceStandard, []string{"inputs_used", "tools_used", "action_taken", "confidence"}},
	{EvidenceFull, []string{"context_refs"}},
}

// evidenceSchemas are schemas of whole result payloads, one a level.
var evidenceSchemas = sync.OnceValue(func() map[EvidenceLevel]*Schema {
	schemas := make(map[EvidenceLevel]*Schema, len(demands))
	var required []string
	for _, d := range demands {
		required = append(required, d.members...)
		names, _ := json.Marshal(required)
		s, err := schema.Compile(fmt.Appendf(nil, `{
			"type": "object", "required": [%q], "properties": {%q: {
				"allOf": [{"$ref": "#/$defs/evidence"}],
				"required": %s,
				"properties": {
					"decision": {"minLength": 1}, "reason_summary": {"minLength": 1}, "action_taken": {"minLength": 1},
					"context_refs": {"items": {"minLength": 1}}
				}
			}},
			"$defs": {"evidence": %s}
		}`, EvidenceMember, EvidenceMember, names, evidenceSchema))
		if err != nil {
			panic(fmt.Sprintf("intents: evidence schema: %v", err))
		}
		schemas[d.level] = s
	}
	return schemas
})

// CheckEvidence holds a result's payload against what the task's level
// demands. The error is a [*ValidationError] whose pointers begin at the
// payload; for a level that is none of the four it is another error.
func CheckEvidence(level EvidenceLevel, payload json.RawMessage) error {
	level, err := ParseEvidenceLevel(string(level))
	if err != nil || level == EvidenceNone {
		return err
	}
	return evidenceSchemas()[level].Validate(payload)
}

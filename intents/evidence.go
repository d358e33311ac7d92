package intents

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// EvidenceLevel is how much a result must say about how it was reached, as requested by
// requires.decision_evidence (extension aee.ext.decision_evidence). The result's payload
// has it in an object decision_evidence.
type EvidenceLevel string

// The levels. Each includes the requirements of the one before it. Lists may be empty if
// there was nothing to list, but they must be present.
const (
	EvidenceNone     EvidenceLevel = "none"     // nothing; a member of that name is not validated
	EvidenceMinimal  EvidenceLevel = "minimal"  // decision and reason_summary, neither of them empty
	EvidenceStandard EvidenceLevel = "standard" // and inputs_used, tools_used, action_taken, confidence
	EvidenceFull     EvidenceLevel = "full"     // and context_refs: ids or locators, none of them empty
)

// EvidenceMember is the member of a result's payload that holds the evidence.
const EvidenceMember = "decision_evidence"

// DecisionEvidence is the evidence object. A nil list and a nil Confidence are omitted
// when encoded; an empty list that is not nil is written.
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

// ParseEvidenceLevel parses a level; "" is [EvidenceNone]. Any other unknown text is an
// error.
func ParseEvidenceLevel(s string) (EvidenceLevel, error) {
	switch l := EvidenceLevel(s); l {
	case "":
		return EvidenceNone, nil
	case EvidenceNone, EvidenceMinimal, EvidenceStandard, EvidenceFull:
		return l, nil
	}
	return "", fmt.Errorf("decision_evidence is %s; it must be none, minimal, standard or full", quoted(s))
}

// demands lists the members that each level requires in addition to the one before.
var demands = []struct {
	level   EvidenceLevel
	members []string
}{
	{EvidenceMinimal, []string{"decision", "reason_summary"}},
	{EvidenceStandard, []string{"inputs_used", "tools_used", "action_taken", "confidence"}},
	{EvidenceFull, []string{"context_refs"}},
}

// evidenceSchemas are the schemas of whole result payloads, one for each level.
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

// CheckEvidence validates a result's payload against the requirements of the task's
// level. The error is a [*ValidationError] whose pointers begin at the payload; for an
// unknown level it is another error.
func CheckEvidence(level EvidenceLevel, payload json.RawMessage) error {
	level, err := ParseEvidenceLevel(string(level))
	if err != nil || level == EvidenceNone {
		return err
	}
	return evidenceSchemas()[level].Validate(payload)
}

// StatedConfidence returns the confidence that an agent's output states: its member
// confidence, or that of its decision evidence; nil if there is none that is a number. Its
// range is not checked.
func StatedConfidence(output json.RawMessage) *float64 {
	var said struct {
		Confidence any `json:"confidence"`
		Evidence   struct {
			Confidence any `json:"confidence"`
		} `json:"decision_evidence"`
	}
	_ = json.Unmarshal(output, &said) // what does not decode states none
	for _, c := range []any{said.Confidence, said.Evidence.Confidence} {
		if n, ok := c.(float64); ok {
			return &n
		}
	}
	return nil
}

// CheckConfidence returns an error with the code E_REQUIRES if a task requires a confidence
// (requires.min_confidence) that its result does not state.
func CheckConfidence(r *envelope.Requirements, result json.RawMessage) error {
	if !r.HasMinConfidence {
		return nil
	}
	switch c := StatedConfidence(result); {
	case c == nil:
		return envelope.Errorf(envelope.CodeRequires, "requires.min_confidence: the result does not say how sure it is")
	case *c < 0 || *c > 1: // in percent, perhaps
		return envelope.Errorf(envelope.CodeRequires, "requires.min_confidence: the result's confidence of %v is not between 0 and 1", *c)
	case *c < r.MinConfidence:
		return TooUnsure(*c, r.MinConfidence)
	}
	return nil
}

// TooUnsure is the error of an agent whose confidence in its answer is below the required one.
func TooUnsure(is, least float64) *envelope.Error {
	return envelope.Errorf(envelope.CodeRequires, "requires.min_confidence: the agent's confidence in its answer is %v, below %v", is, least)
}

// Confidence is [StatedConfidence] for a condition: nil also if the number is not between 0 and 1.
func Confidence(output json.RawMessage) *float64 {
	if c := StatedConfidence(output); c != nil && *c >= 0 && *c <= 1 {
		return c
	}
	return nil
}

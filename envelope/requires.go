package envelope

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// DecisionEvidence is how much an agent must tell of how it came to a result
// (requires.decision_evidence).
type DecisionEvidence string

// The levels of decision evidence, from nothing to everything.
const (
	EvidenceNone     DecisionEvidence = "none"
	EvidenceMinimal  DecisionEvidence = "minimal"
	EvidenceStandard DecisionEvidence = "standard"
	EvidenceFull     DecisionEvidence = "full"
)

// Requirements is the typed view of field requires. Zero values mean that a
// key is absent or null; unknown keys are ignored (rule 10).
type Requirements struct {
	Timeout          time.Duration    // timeout_ms; receivers cap it
	HumanApproval    bool             // human_approval
	Evidence         bool             // evidence
	Format           string           // format of the result, e.g. "json"
	MinConfidence    float64          // min_confidence, 0 to 1; see HasMinConfidence
	HasMinConfidence bool             // min_confidence is there
	DecisionEvidence DecisionEvidence // decision_evidence
	Stream           bool             // stream: send stream envelopes before the terminal one
}

// maxTimeout keeps timeout_ms within what a time.Duration can hold.
const maxTimeout = math.MaxInt64 / int64(time.Millisecond)

// Requirements reads field requires. A known key with a value of the wrong
// kind is an *[Error] with code E_REQUIRES: a constraint that cannot be
// understood must not be ignored.
func (e *Envelope) Requirements() (r Requirements, err error) {
	if e.Requires == nil {
		return r, nil
	}
	err = eachMember(e.Requires, func(name, value []byte) error {
		if string(value) == "null" {
			return nil
		}
		ok := true
		switch string(name) {
		case "timeout_ms":
			var ms float64
			if ms, ok = numberValue(value); ok {
				ok = ms > 0
				r.Timeout = time.Duration(math.Min(math.Ceil(ms), float64(maxTimeout))) * time.Millisecond
			}
			if !ok {
				return badRequirement(name, "a number of milliseconds above 0")
			}
		case "human_approval":
			r.HumanApproval, ok = boolValue(value)
		case "evidence":
			r.Evidence, ok = boolValue(value)
		case "stream":
			r.Stream, ok = boolValue(value)
		case "format":
			if r.Format, ok = stringValue(value); !ok {
				return badRequirement(name, "a string")
			}
		case "min_confidence":
			r.MinConfidence, r.HasMinConfidence = numberValue(value)
			if !r.HasMinConfidence || r.MinConfidence < 0 || r.MinConfidence > 1 {
				return badRequirement(name, "a number from 0 to 1")
			}
		case "decision_evidence":
			level, _ := stringValue(value)
			switch r.DecisionEvidence = DecisionEvidence(level); r.DecisionEvidence {
			case EvidenceNone, EvidenceMinimal, EvidenceStandard, EvidenceFull:
			default:
				return badRequirement(name, "none, minimal, standard or full")
			}
		}
		if !ok {
			return badRequirement(name, "true or false")
		}
		return nil
	})
	if err != nil {
		return Requirements{}, err
	}
	return r, nil
}

func badRequirement(name []byte, want string) error {
	return Errorf(CodeRequires, "requires.%s must be %s", name, want)
}

func boolValue(raw []byte) (value, ok bool) {
	return string(raw) == "true", string(raw) == "true" || string(raw) == "false"
}

func numberValue(raw []byte) (float64, bool) {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil
}

// AppendJSON appends the JSON object for field requires, with the keys that
// are set only (AEE: producers keep requires compact). It is nil-safe for the
// zero value, which gives "{}".
func (r Requirements) AppendJSON(dst []byte) []byte {
	if dst == nil {
		dst = make([]byte, 0, 48) // enough for the usual two keys
	}
	dst = append(dst, '{')
	from := len(dst)
	key := func(name string) {
		if len(dst) > from {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, '"', ':')
	}
	if r.DecisionEvidence != "" {
		key("decision_evidence")
		dst = AppendString(dst, string(r.DecisionEvidence))
	}
	if r.Evidence {
		key("evidence")
		dst = append(dst, "true"...)
	}
	if r.Format != "" {
		key("format")
		dst = AppendString(dst, r.Format)
	}
	if r.HumanApproval {
		key("human_approval")
		dst = append(dst, "true"...)
	}
	if r.HasMinConfidence {
		key("min_confidence")
		dst = appendFloat(dst, r.MinConfidence)
	}
	if r.Stream {
		key("stream")
		dst = append(dst, "true"...)
	}
	if r.Timeout > 0 {
		key("timeout_ms")
		dst = strconv.AppendInt(dst, max(1, r.Timeout.Milliseconds()), 10)
	}
	return append(dst, '}')
}

// String is the JSON of the constraints, for logs.
func (r Requirements) String() string { return fmt.Sprintf("%s", r.AppendJSON(nil)) }

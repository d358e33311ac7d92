package envelope

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// DecisionEvidence says how much an agent must report about how it reached a result
// (requires.decision_evidence).
type DecisionEvidence string

// The levels of decision evidence, from nothing to everything.
const (
	EvidenceNone     DecisionEvidence = "none"
	EvidenceMinimal  DecisionEvidence = "minimal"
	EvidenceStandard DecisionEvidence = "standard"
	EvidenceFull     DecisionEvidence = "full"
)

// Requirements holds the decoded field requires. A zero value means that the key is
// absent or null; unknown keys are ignored (rule 10).
type Requirements struct {
	Timeout          time.Duration    // timeout_ms; receivers cap it
	HumanApproval    bool             // human_approval
	Evidence         bool             // evidence
	Format           string           // format of the result, e.g. "json"
	MinConfidence    float64          // min_confidence, 0 to 1; see HasMinConfidence
	HasMinConfidence bool             // min_confidence is present
	DecisionEvidence DecisionEvidence // decision_evidence
	Stream           bool             // stream: send stream envelopes before the terminal one
}

// maxTimeout limits timeout_ms to what a time.Duration can hold.
const maxTimeout = math.MaxInt64 / int64(time.Millisecond)

// Requirements decodes field requires. A known key with a value of the wrong type, or a
// duplicate name, is an *[Error] with code E_REQUIRES: a constraint that cannot be
// understood must not be ignored. The other constraints are returned with the error,
// because the reply may need them, for instance stream.
func (e *Envelope) Requirements() (Requirements, error) {
	return readRequires(e.Requires, nil)
}

// ReadRequires is [Envelope.Requirements] and also returns the keys that Requirements
// does not have. Names are decoded, so that escapes cannot hide a key: a signature covers
// the canonical form of requires, in which "not_befor\u0065" is not_before.
func (e *Envelope) ReadRequires() (known Requirements, others Members, err error) {
	known, err = readRequires(e.Requires, &others)
	return known, others, err
}

// Members are the members of a JSON object, in their order.
type Members []Member

// Get returns the value of the member with exactly this name, nil if there is none.
func (m Members) Get(name string) json.RawMessage {
	for i := range m {
		if m[i].Name == name {
			return m[i].Value
		}
	}
	return nil
}

// readRequires decodes field requires. It adds keys that Requirements does not have to
// others, unless others is nil. A null counts as absent.
func readRequires(raw json.RawMessage, others *Members) (r Requirements, err error) {
	if raw == nil {
		return r, nil
	}
	var bad error
	var names nameSet
	err = eachMember(raw, func(name, value []byte) error {
		if !names.add(name) {
			return Errorf(CodeRequires, "requires has the name %s twice", quoteName(name))
		}
		if string(value) == "null" {
			return nil
		}
		known, want := r.read(name, value)
		switch {
		case want != "" && bad == nil:
			bad = badRequirement(name, want)
		case !known && others != nil:
			if *others == nil {
				*others = make(Members, 0, 4)
			}
			*others = append(*others, Member{string(name), value})
		}
		return nil
	})
	names.release()
	if err == nil {
		err = bad
	}
	return r, err
}

// read decodes one key if it is known. If the value is wrong, want describes what it must be.
func (r *Requirements) read(name, value []byte) (known bool, want string) {
	var ok bool
	switch string(name) {
	case "timeout_ms":
		ms, ok := numberValue(value)
		if !ok || ms <= 0 {
			return true, "a number of milliseconds above 0"
		}
		r.Timeout = time.Duration(math.Min(math.Ceil(ms), float64(maxTimeout))) * time.Millisecond
		return true, ""
	case "min_confidence":
		c, ok := numberValue(value)
		if !ok || c < 0 || c > 1 {
			return true, "a number from 0 to 1"
		}
		r.MinConfidence, r.HasMinConfidence = c, true
		return true, ""
	case "format":
		if r.Format, ok = stringValue(value); !ok {
			return true, "a string"
		}
		return true, ""
	case "decision_evidence":
		text, _ := stringValue(value)
		switch level := DecisionEvidence(text); level {
		case EvidenceNone, EvidenceMinimal, EvidenceStandard, EvidenceFull:
			r.DecisionEvidence = level
			return true, ""
		}
		return true, "none, minimal, standard or full"
	case "human_approval":
		r.HumanApproval, ok = boolValue(value)
	case "evidence":
		r.Evidence, ok = boolValue(value)
	case "stream":
		r.Stream, ok = boolValue(value)
	default:
		return false, ""
	}
	if !ok {
		return true, "true or false"
	}
	return true, ""
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

// AppendJSON appends the JSON object for field requires, with only those keys that are
// set (AEE: producers keep requires compact). The zero value gives "{}".
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

// String returns the JSON of the constraints, for logs.
func (r Requirements) String() string { return string(r.AppendJSON(nil)) }

package wire

import (
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
)

// WithSeq puts "seq" into a JSON object, in front.
func WithSeq(payload json.RawMessage, seq int) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(payload, &members); err != nil || members == nil {
		return nil, fmt.Errorf("a stream payload must be a JSON object: %w", err)
	}
	b := fmt.Appendf(make([]byte, 0, len(payload)+16), `{"seq":%d`, seq)
	if _, taken := members["seq"]; taken {
		// The name belongs to the mesh (docs/nats-binding.md).
		delete(members, "seq")
		rest, err := json.Marshal(members)
		if err != nil {
			return nil, err
		}
		payload = rest
		if len(members) == 0 {
			return append(b, '}'), nil
		}
	} else if len(members) == 0 {
		return append(b, '}'), nil
	}
	open := 0
	for payload[open] != '{' {
		open++
	}
	b = append(b, ',')
	return append(b, payload[open+1:]...), nil
}

// SeqOf returns the number of a stream envelope by its payload, 0 if it has none.
func SeqOf(payload json.RawMessage) int {
	var p struct {
		Seq int `json:"seq"`
	}
	if ReadJSON(payload, &p) != nil {
		return 0
	}
	return max(p.Seq, 0)
}

// ReservedMember reports whether a member of a payload is reserved for the mesh
// (docs/nats-binding.md, "Payloads").
func ReservedMember(name string) bool {
	switch name {
	case "usage", "cost", "decision_evidence", "references", "job_id", "run_id", "replies", "swarm", "schema_update_suggestion":
		return true
	}
	return false
}

// PlainText returns the text of {"text": …}, and ignores members that are reserved for
// the mesh. Any other payload it returns as JSON.
func PlainText(payload json.RawMessage) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil {
		return payload
	}
	for name := range members {
		if name != "text" && !ReservedMember(name) {
			return payload
		}
	}
	var text *string
	if json.Unmarshal(members["text"], &text) == nil && text != nil {
		return []byte(*text)
	}
	return payload
}

// ReadJSON reads JSON of a peer into v, a pointer. It compares names of members letter by letter,
// as the schemas do: encoding/json would also take ID for id, and so see another value than
// the check before it.
func ReadJSON(data json.RawMessage, v any) error { return jsonv2.Unmarshal(data, v) }

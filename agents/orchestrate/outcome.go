package orchestrate

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
)

// Outcome is what came of one member's work.
type Outcome struct {
	Slot    int    `json:"slot"` // place in the plan's members; of a pipeline, in its steps
	Alias   string `json:"alias"`
	Entity  string `json:"entity,omitempty"`
	AgentID string `json:"agent_id,omitempty"` // of who answered on another platform
	TaskID  string `json:"task_id,omitempty"`  // of the task that the member was sent
	Durable bool   `json:"durable,omitempty"`  // over the durable lane

	// Output is what it answered, bare: see [Bare]. It is nil where Err is not.
	Output json.RawMessage `json:"-"`
	Err    *envelope.Error `json:"error,omitempty"`

	Began time.Time `json:"began,omitzero"`
	MS    float64   `json:"ms,omitempty"`    // how long it took
	Tries int       `json:"tries,omitempty"` // more than one: it was asked again

	// Result refers to the envelope of its output; nil: no member was asked, or it cannot be referred to.
	Result *envelope.Reference `json:"result,omitempty"`

	Skipped bool   `json:"skipped,omitempty"` // nobody was asked: its condition did not hold
	Instead string `json:"instead,omitempty"` // the alias whose part the fallback did
	Usage   Usage  `json:"usage,omitzero"`    // as far as its answer says

	asked time.Time // when whoever has it now was, in this try; Began is when the first was
}

// OK reports whether there is an output.
func (o *Outcome) OK() bool { return o.Err == nil && o.Output != nil }

// Usage is the reserved member usage of results.
type Usage struct {
	InputTokens  int64     `json:"input_tokens,omitempty"`
	OutputTokens int64     `json:"output_tokens,omitempty"`
	CostUSD      model.USD `json:"cost_usd,omitempty"`
}

// Add is the sum of two.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.InputTokens + v.InputTokens, u.OutputTokens + v.OutputTokens, u.CostUSD.Add(v.CostUSD)}
}

// reserved are the members of a payload that are the mesh's (docs/nats-binding.md).
// They say something of the task that was done, and are not handed on to the
// next.
var reserved = map[string]bool{"usage": true, "cost": true, "decision_evidence": true, "references": true, "job_id": true, "swarm": true}

// Bare is a result's payload without the members that the mesh adds: what the
// agent itself answered. What is no JSON object is returned as it is.
func Bare(payload json.RawMessage) json.RawMessage {
	out, _ := parts(payload, false)
	return out
}

// parts divides a result's payload into what the agent answered, and what it
// says that was used. Of the result of the whole task all else stays.
func parts(payload json.RawMessage, final bool) (bare json.RawMessage, used Usage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil || members == nil {
		return payload, used
	}
	if raw, ok := members["usage"]; ok {
		_ = json.Unmarshal(raw, &used) // one of other members says nothing
		used.InputTokens, used.OutputTokens, used.CostUSD = max(0, used.InputTokens), max(0, used.OutputTokens), max(0, used.CostUSD)
	}
	gone := func(name string) bool { return name == "usage" || reserved[name] && !final }
	for name := range members {
		if gone(name) {
			return Without(payload, gone), used
		}
	}
	return payload, used
}

// Without is a JSON object without some of its members, in its order, compact.
func Without(object json.RawMessage, gone func(name string) bool) json.RawMessage {
	value := jsontext.Value(object).Clone()
	if value.Compact() != nil {
		return object
	}
	out := []byte{'{'}
	eachMember(value, func(name string, raw jsontext.Value) {
		if gone(name) {
			return
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(envelope.AppendString(out, name), ':')
		out = append(out, raw...)
	})
	return append(out, '}')
}

// eachMember calls f with each member of a valid JSON object, in order.
func eachMember(object jsontext.Value, f func(name string, value jsontext.Value)) {
	dec := jsontext.NewDecoder(bytes.NewReader(object))
	if _, err := dec.ReadToken(); err != nil {
		return
	}
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return
		}
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return
		}
		f(name, value)
	}
}

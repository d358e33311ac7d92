package orchestrate

import (
	"encoding/json"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// Outcome is the result or the failure of one member's work.
type Outcome struct {
	Slot    int    `json:"slot"` // index in the plan's members; for a pipeline, in its steps
	Alias   string `json:"alias"`
	Entity  string `json:"entity,omitempty"`
	AgentID string `json:"agent_id,omitempty"` // of the member that answered on another platform
	TaskID  string `json:"task_id,omitempty"`  // of the task that the member was sent
	Durable bool   `json:"durable,omitempty"`  // the task went over the durable lane

	// Call is the idempotency key of the model's tool call, in a team that its
	// model leads.
	Call string `json:"call,omitempty"`

	// Output is the member's answer without the mesh's members: see [Bare]. It
	// is nil if Err is not, and in a run that its model leads: there the
	// conversation has it.
	Output json.RawMessage `json:"-"`
	Err    *envelope.Error `json:"error,omitempty"`

	Began time.Time `json:"began,omitzero"`
	MS    float64   `json:"ms,omitempty"`    // the duration
	Tries int       `json:"tries,omitempty"` // more than one: the call was retried

	// Result refers to the envelope of the output; nil if no member was called,
	// or if the envelope cannot be referred to.
	Result *envelope.Reference `json:"result,omitempty"`

	Skipped bool   `json:"skipped,omitempty"` // no member was called: the condition did not hold
	Instead string `json:"instead,omitempty"` // the alias of the member whose part the fallback did
	Usage   Usage  `json:"usage,omitzero"`    // as reported by the member

	key   string    // of the call
	asked time.Time // when the current receiver was called, in this try; Began is when the first one was
}

// OK reports whether the outcome has an output.
func (o *Outcome) OK() bool { return o.Err == nil && o.Output != nil }

// Answered reports whether a member has answered its task.
func (o *Outcome) Answered() bool { return o.Err == nil && o.TaskID != "" }

// Usage is the reserved member usage of results.
type Usage struct {
	InputTokens  int64     `json:"input_tokens,omitempty"`
	OutputTokens int64     `json:"output_tokens,omitempty"`
	CostUSD      model.USD `json:"cost_usd,omitempty"`
}

// Add returns the sum of both.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.InputTokens + v.InputTokens, u.OutputTokens + v.OutputTokens, u.CostUSD.Add(v.CostUSD)}
}

// reserved are the members of a payload that belong to the mesh
// (docs/nats-binding.md). They describe the completed task and are not passed
// on to the next member.
var reserved = map[string]bool{
	"usage": true, "cost": true, "decision_evidence": true, "references": true, "job_id": true, "swarm": true, "schema_update_suggestion": true,
}

// Bare returns a result's payload without the members that the mesh adds: the
// agent's own answer. A payload that is not a JSON object is returned
// unchanged.
func Bare(payload json.RawMessage) json.RawMessage {
	out, _ := parts(payload, false)
	return out
}

// parts splits a result's payload into the agent's answer and the reported
// usage. If the answer is the result of the whole task, all other members stay.
func parts(payload json.RawMessage, final bool) (bare json.RawMessage, used Usage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil || members == nil {
		return payload, used
	}
	if raw, ok := members["usage"]; ok {
		_ = json.Unmarshal(raw, &used) // members of an unexpected type count as no usage
		plausible := model.Usage{InputTokens: used.InputTokens, OutputTokens: used.OutputTokens}.Believable()
		used.InputTokens, used.OutputTokens, used.CostUSD = plausible.InputTokens, plausible.OutputTokens, max(0, used.CostUSD)
	}
	gone := func(name string) bool { return name == "usage" || reserved[name] && !final }
	for name := range members {
		if gone(name) {
			return Without(payload, gone), used
		}
	}
	return payload, used
}

// Without returns a JSON object without some of its members, compact and in the
// same order.
func Without(object json.RawMessage, gone func(name string) bool) json.RawMessage {
	value := jsontext.Value(object).Clone()
	if value.Compact() != nil {
		return object
	}
	out := []byte{'{'}
	state.EachMember(value, func(name string, raw jsontext.Value) {
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

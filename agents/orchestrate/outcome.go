package orchestrate

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/orchestrate/progress"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// Outcome is the result or the failure of one member's work.
type Outcome = progress.Outcome

// Usage is the reserved member usage of results.
type Usage = progress.Usage

// Pattern is how the members of a team work together (AAIF, Orchestration
// Topology).
type Pattern = progress.Pattern

// The patterns.
const (
	Pipeline = progress.Pipeline // one after the other, each with the previous one's output
	Swarm    = progress.Swarm    // all with the same input; their outputs make one result
	Router   = progress.Router   // one of them does the task
	ModelLed = progress.ModelLed // the agent's model calls them
)

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
		used.InputTokens, used.OutputTokens, used.CostUSD = plausible.InputTokens, plausible.OutputTokens, used.CostUSD.Believable()
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

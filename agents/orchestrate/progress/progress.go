package progress

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
)

// Pattern is how the members of a team work together (AAIF, Orchestration
// Topology).
type Pattern string

// The patterns.
const (
	Pipeline Pattern = "pipeline"  // one after the other, each with the previous one's output
	Swarm    Pattern = "swarm"     // all with the same input; their outputs make one result
	Router   Pattern = "router"    // one of them does the task
	ModelLed Pattern = "model_led" // the agent's model calls them
)

// Team is a team's progress in a run's checkpoint: part of the member plan of x-aeemesh.
type Team struct {
	Pattern  Pattern   `json:"pattern"`
	Routed   string    `json:"routed"`   // of a router: the alias of the chosen member
	Outcomes []Outcome `json:"outcomes"` // in the order in which they became known, without outputs
}

// Of reads the member plan of a checkpoint. It returns nil if there is none.
func Of(plan json.RawMessage) (*Team, error) {
	if plan == nil {
		return nil, nil
	}
	var t Team
	if err := json.Unmarshal(plan, &t); err != nil {
		return nil, fmt.Errorf("read the team's position: %w", err)
	}
	return &t, nil
}

// Outcome is the result or the failure of one member's work.
type Outcome struct {
	Slot    int    `json:"slot"` // index in the plan's members; for a pipeline, in its steps; for a swarm, in the members with which the run began
	Alias   string `json:"alias"`
	Entity  string `json:"entity,omitempty"`
	AgentID string `json:"agent_id,omitempty"` // of the member that answered on another platform
	TaskID  string `json:"task_id,omitempty"`  // of the task that was sent to the member
	Durable bool   `json:"durable,omitempty"`  // the task went over the durable lane

	// Call is the idempotency key of the model's tool call, in a team that its
	// model leads.
	Call string `json:"call,omitempty"`

	// Output is the member's answer without the mesh's members: see
	// orchestrate.Bare. It is nil if Err is not, and in a run that its model
	// leads: there the conversation has it.
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

	Key   string    `json:"-"` // of the call; known to the worker that made it
	Asked time.Time `json:"-"` // when the current receiver was called, in this attempt; Began is when the first one was
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

// Add returns the sum of both, with a cost that is [model.USD.Believable].
func (u Usage) Add(v Usage) Usage {
	return Usage{u.InputTokens + v.InputTokens, u.OutputTokens + v.OutputTokens, u.CostUSD.Add(v.CostUSD).Believable()}
}

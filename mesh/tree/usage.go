package tree

import (
	"encoding/json"
	"math"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/state"
)

// Usage is the model usage of tasks.
type Usage struct {
	InputTokens   int64     `json:"input_tokens"`
	OutputTokens  int64     `json:"output_tokens"`
	ModelCalls    int64     `json:"model_calls,omitempty"`
	ToolCalls     int64     `json:"tool_calls,omitempty"`
	CostUSD       model.USD `json:"cost_usd,omitempty"`       // as far as prices are known
	UnpricedCalls int64     `json:"unpriced_calls,omitempty"` // of a model without a known price
}

// Tokens returns the sum of input and output tokens.
func (u Usage) Tokens() int64 { return plus(u.InputTokens, u.OutputTokens) }

// parts returns all counts, for operations on each of them.
func (u *Usage) parts() [6]*int64 {
	return [6]*int64{&u.InputTokens, &u.OutputTokens, &u.ModelCalls, &u.ToolCalls, (*int64)(&u.CostUSD), &u.UnpricedCalls}
}

// each combines two usages, count by count.
func (u Usage) each(v Usage, f func(a, b int64) int64) (out Usage) {
	a, b := u.parts(), v.parts()
	for i, to := range out.parts() {
		*to = f(*a[i], *b[i])
	}
	return out
}

func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (u Usage) add(v Usage) Usage  { return u.each(v, plus) }
func (u Usage) most(v Usage) Usage { return u.each(v, func(a, b int64) int64 { return max(a, b) }) }

// less returns u minus v; no count is below zero.
func (u Usage) less(v Usage) Usage {
	return u.each(v, func(a, b int64) int64 { return max(0, a-b) })
}

// readUsage reads a usage in the form of events and results, with cost_usd or cost_nano_usd. It
// returns nil if there is none.
func readUsage(raw json.RawMessage) *Usage {
	var told struct {
		Usage
		CostNanoUSD int64 `json:"cost_nano_usd"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &told) != nil {
		return nil
	}
	if told.CostNanoUSD > 0 {
		told.CostUSD = model.USD(told.CostNanoUSD)
	}
	u := told.Usage.most(Usage{})
	if u == (Usage{}) {
		return nil
	}
	return &u
}

// usageOf returns a run's own usage, from its checkpoint.
func usageOf(u state.Usage) *Usage {
	out := Usage{u.InputTokens, u.OutputTokens, u.ModelCalls, u.ToolCalls, model.USD(u.CostNanoUSD), u.UnpricedCalls}.most(Usage{})
	if out == (Usage{}) {
		return nil
	}
	return &out
}

// usageIn returns the reserved member usage of a result's payload.
func usageIn(payload json.RawMessage) *Usage {
	var result struct {
		Usage json.RawMessage `json:"usage"`
	}
	if json.Unmarshal(payload, &result) != nil {
		return nil
	}
	return readUsage(result.Usage)
}

package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// LostCall decides about a tool call that had begun when its worker was lost,
// so that it is not known whether the call was done.
type LostCall string

// The values of LostCall.
const (
	// LostRepeat makes the call again, under the same idempotency key.
	LostRepeat LostCall = "repeat"
	// LostTimeOut gives the call up: the model gets a timeout error that says
	// that the outcome is not known.
	LostTimeOut LostCall = "timeout"
	// LostAsk parks the run until a person says what became of the call.
	LostAsk LostCall = "ask"
)

// AnyTool stands in [Options].LostCalls for all tools that it does not name.
const AnyTool = "*"

// checkLost reports what is wrong with [Options].LostCalls. It may name tools
// that are registered and that this agent does not use.
func (s *toolset) checkLost(policy map[string]LostCall, registry *tool.Registry) error {
	known := append(registry.Names(), AnyTool)
	for _, e := range s.entries {
		if e.source != nil {
			known = nil // the name may be a tool that the source lists
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(policy)) {
		switch p := policy[name]; {
		case known != nil && !slices.Contains(known, name):
			return fmt.Errorf("lost calls: there is no tool %s", name)
		case p != LostRepeat && p != LostTimeOut && p != LostAsk:
			return fmt.Errorf("lost calls of %s: %q is none of %s, %s, %s", name, p, LostRepeat, LostTimeOut, LostAsk)
		}
	}
	return nil
}

// lost is the policy for a tool: the operator's for its name, else the tool's
// own declaration, else the operator's for all tools.
func (o *offered) lost(name string) LostCall {
	if p, ok := o.policy[name]; ok {
		return p
	}
	if t := o.tools[name]; t != nil && tool.IsRepeatSafe(t) {
		return LostRepeat
	}
	if p, ok := o.policy[AnyTool]; ok {
		return p
	}
	return LostAsk
}

// lostWords is the error that the model gets for a call that was given up.
const lostWords = "the worker that made this call was lost; whether the call was done is not known"

// lostCalls decides about calls that had begun and have no receipt although no
// call is under way: calls of a worker that was lost (AAIF, Cross-Platform
// Migration Protocol, step 6). If a person must decide about a call, the run is
// parked.
func (l *loop) lostCalls(ctx context.Context, task *mesh.Task, r *run) error {
	var unknown []*toolCall
	e := task.Envelope
	for _, c := range r.open() {
		if c.effect.Status == state.EffectPending {
			continue
		}
		policy := r.tools.lost(c.Name)
		if c.effect.Status == state.EffectInFlight {
			l.log.Warn("a tool call has no receipt", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "tool", c.Name, "call", c.ID, "then", string(policy))
		}
		switch policy {
		case LostRepeat:
			c.effect.Status = state.EffectPending
		case LostTimeOut:
			r.recordReceipt(c, state.EffectTimedOut, model.ToolFailure(c.ToolCall, tool.ErrTimeout.Error()+": "+lostWords))
		default:
			c.effect.Status = state.EffectUnknown
			unknown = append(unknown, c)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return r.journal.Park(ctx, aaif.RunAwaitingApproval, func(cp *state.Checkpoint) error {
		if err := r.save(cp); err != nil {
			return err
		}
		cp.Doc.ApprovalRequest = approvalRequest(unknown)
		return nil
	})
}

// pendingAction is the pending_action of an approval request: the first call in
// the specification's members, and all calls in our own.
type pendingAction struct {
	ToolName  string          `json:"tool_name"`
	Arguments json.RawMessage `json:"arguments"`
	Calls     []unknownCall   `json:"calls"`
}

type unknownCall struct {
	Call  string `json:"call"`
	Tool  string `json:"tool"`
	Key   string `json:"key"`
	Begun string `json:"begun,omitempty"`
	Tries int    `json:"tries,omitempty"`
}

func approvalRequest(unknown []*toolCall) *aaif.ApprovalRequest {
	action := pendingAction{ToolName: unknown[0].Name, Arguments: argumentsObject(unknown[0].Arguments)}
	var names []string
	for _, c := range unknown {
		call := unknownCall{Call: c.ID, Tool: c.Name, Key: c.effect.Key, Tries: c.effect.Tries}
		if !c.effect.At.IsZero() {
			call.Begun = state.Time(c.effect.At)
		}
		action.Calls = append(action.Calls, call)
		names = append(names, fmt.Sprintf("%s (call %s)", c.Name, c.ID))
	}
	raw, err := json.Marshal(action)
	if err != nil {
		panic("agents: a pending action cannot be written: " + err.Error()) // the arguments are valid JSON
	}
	return &aaif.ApprovalRequest{
		TriggerDescription: "The outcome of a tool call is unknown: the worker was lost after it began. Settle it as done or failed, or have it repeated: " + strings.Join(names, ", "),
		PendingAction:      raw,
		RequestedAt:        state.Time(time.Now()),
	}
}

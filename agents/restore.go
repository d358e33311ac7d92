package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// restore reads a run from its last checkpoint, which may be written by another
// worker, another release or another platform. Turns taken before count:
// max_iterations limits the whole run (AAIF, Agent State Document).
func (l *loop) restore(ctx context.Context, task *mesh.Task, r *run, cp *state.Checkpoint, system string) error {
	r.messages = cp.Messages()
	r.turns = int(max(0, min(cp.Doc.Iteration.Int64(), math.MaxInt32)))
	r.usage = cp.Mesh.Usage
	if len(cp.Mesh.Loop) == 0 {
		r.adopt(cp, system)
	} else {
		if err := r.load(cp); err != nil {
			return err
		}
		r.setPrompt(task, system)
	}
	// Reject a conversation that no provider accepts here, where the error can
	// name the wrong message, and not at the provider.
	if err := (&model.Request{Messages: r.messages}).Validate(); err != nil {
		return fmt.Errorf("read the run from its checkpoint: its conversation is not valid for a model: %v", err)
	}
	if r.phase == phaseTools {
		r.loadCalls(task, cp)
	}
	return l.loadMemory(ctx, task, r, cp)
}

// setPrompt makes system the first message of a run that began under another system prompt: of
// another version of the document, or on another mesh. This worker's constraints hold from here on
// (AAIF, Security Considerations).
func (r *run) setPrompt(task *mesh.Task, system string) {
	has := r.messages[0].Role == model.RoleSystem
	if has && isHanded(r.messages[0].Content) {
		system += handedBy(task)
	}
	switch {
	case !has:
		r.messages = slices.Insert(r.messages, 0, model.System(system))
	case r.messages[0].Content != system:
		r.messages[0] = model.System(system)
	default:
		return
	}
	r.rewrite = true
}

// load reads the state that save wrote.
func (r *run) load(cp *state.Checkpoint) error {
	var own saved
	if err := json.Unmarshal(cp.Mesh.Loop, &own); err != nil {
		return fmt.Errorf("read the run from its checkpoint: %w", err)
	}
	if own.Format > loopFormat {
		return envelope.Errorf(envelope.CodeUnavailable, "the run was stored by a newer release than this worker's")
	}
	r.phase, r.cut, r.repaired, r.toolsUsed = own.Phase, own.Cut, own.Repaired, own.ToolsUsed
	r.learned, r.taskFirst, r.payload = own.Window, own.TaskFirst, own.Payload
	r.trace, r.handoff = own.Trace, own.Handoff
	return nil
}

// loadCalls restores the calls of the last turn from the end of the
// conversation, the ledger and the pending tool calls.
func (r *run) loadCalls(task *mesh.Task, cp *state.Checkpoint) {
	last := len(r.messages) - 1
	for last > 0 && r.messages[last].Role == model.RoleTool {
		last--
	}
	said := make(map[string]model.Message)
	for _, m := range r.messages[last+1:] {
		said[m.ToolCallID] = m
	}
	r.messages = r.messages[:last+1]
	r.calls = r.newCalls(task, r.messages[last].ToolCalls)
	ledger := cp.Mesh.Effects[max(0, len(cp.Mesh.Effects)-len(r.calls)):]
	for i, c := range r.calls {
		if i < len(ledger) && ledger[i].ID == c.ID {
			c.load(ledger[i])
		}
		if m, ok := said[c.ID]; ok {
			c.receipt = &m
			if !c.effect.Status.Final() {
				c.effect.Status = state.EffectDone
			}
		}
	}
	for _, p := range cp.Doc.PendingToolCalls {
		for _, c := range r.calls {
			if c.ID == p.ID {
				c.callback = p.CallbackURL
			}
		}
	}
	if len(ledger) > 0 {
		return
	}
	for _, p := range cp.Doc.PendingToolCalls { // in a document of another platform, which has no ledger
		for _, c := range r.calls {
			if c.ID == p.ID && c.receipt == nil && p.Status != "" && p.Status != aaif.ToolCallPending {
				c.effect.Status = state.EffectInFlight
				if at, err := time.Parse(time.RFC3339, p.SubmittedAt); err == nil { // else it is not known
					c.effect.At = at.UTC()
				}
			}
		}
	}
}

// load restores a call from its line in the ledger.
func (c *toolCall) load(line state.Effect) {
	c.effect, c.written = line, true
	switch { // a person's verdict about a lost call is only in the ledger, not in the conversation yet
	case !line.Status.Final():
	case line.Status == state.EffectDone:
		m := model.ToolResult(c.ToolCall, line.Result)
		c.receipt = &m
	default:
		m := model.ToolFailure(c.ToolCall, line.Error)
		c.receipt = &m
	}
	c.effect.Result, c.effect.Error = nil, ""
}

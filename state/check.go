package state

import (
	"fmt"
	"math"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pattern"
	"github.com/go-json-experiment/json/jsontext"
)

var versionPattern = pattern.Of(`^[0-9]+\.[0-9]+\.[0-9]+$`)

// check verifies what the schema and this package require beyond the Go types, before a
// checkpoint is written and after it is read. The schema accepts every document that
// Marshal writes of a checkpoint that check accepts.
func (c *Checkpoint) check() error {
	d := &c.Doc
	switch {
	case d.StateID == "":
		return missing("state_id")
	case d.AgentID == "":
		return missing("agent_id")
	case d.CheckpointAt == "":
		return missing("checkpoint_at")
	case d.Version != "" && d.Version != version && !versionPattern.RE().MatchString(d.Version):
		return invalid("sc_version %q", clip.Text(d.Version, 80))
	case d.Extensions != nil && d.Extensions.Kind() != '{':
		return invalid("the extensions are no JSON object")
	}
	switch d.Status {
	case aaif.RunRunning, aaif.RunPaused, aaif.RunAwaitingApproval, aaif.RunAwaitingToolResult, aaif.RunCompleted, aaif.RunFailed, aaif.RunMigrating:
	case "":
		return missing("status")
	default:
		return invalid("status %q", clip.Text(string(d.Status), 80))
	}
	if !integer(d.Iteration, 0) {
		return invalid("iteration %q", clip.Text(string(d.Iteration), 80))
	}
	for i, m := range d.Conversation {
		switch m.Role {
		case aaif.MessageSystem, aaif.MessageUser, aaif.MessageAssistant, aaif.MessageTool:
		default:
			return invalid("conversation[%d]: role %q", i, clip.Text(string(m.Role), 80))
		}
		if !integer(m.TokenCount, math.Inf(-1)) {
			return invalid("conversation[%d]: token_count %q", i, clip.Text(string(m.TokenCount), 80))
		}
	}
	for i, m := range d.MemorySnapshot {
		switch m.Scope {
		case aaif.ScopeUser, aaif.ScopeSession, aaif.ScopeTask, aaif.ScopeLongTerm:
		default:
			return invalid("memory_snapshot[%d]: scope %q", i, clip.Text(string(m.Scope), 80))
		}
		if !integer(m.TTLRemainingSeconds, math.Inf(-1)) {
			return invalid("memory_snapshot[%d]: ttl_remaining_seconds %q", i, clip.Text(string(m.TTLRemainingSeconds), 80))
		}
	}
	for i, p := range d.PendingToolCalls {
		switch p.Status {
		case "", aaif.ToolCallPending, aaif.ToolCallInFlight, aaif.ToolCallAwaitingResult:
		default:
			return invalid("pending_tool_calls[%d]: status %q", i, clip.Text(string(p.Status), 80))
		}
		if deeper(jsontext.Value(p.Arguments)) {
			return invalid("pending_tool_calls[%d]: arguments nest too deep", i)
		}
	}
	for i, s := range d.SubagentStates {
		switch s.Status {
		case "", aaif.SubagentPending, aaif.SubagentRunning, aaif.SubagentPaused, aaif.SubagentCompleted, aaif.SubagentFailed:
		default:
			return invalid("subagent_states[%d]: status %q", i, clip.Text(string(s.Status), 80))
		}
		if deeper(jsontext.Value(s.Output)) {
			return invalid("subagent_states[%d]: output nests too deep", i)
		}
	}
	switch {
	case d.PipelinePosition != nil && !integer(d.PipelinePosition.ParallelSlot, math.Inf(-1)):
		return invalid("pipeline_position: parallel_slot %q", clip.Text(string(d.PipelinePosition.ParallelSlot), 80))
	case d.Error != nil && !integer(d.Error.RetriesRemaining, 0):
		return invalid("error: retries_remaining %q", clip.Text(string(d.Error.RetriesRemaining), 80))
	case deeper(jsontext.Value(d.Variables)):
		return invalid("variables nest too deep")
	case d.ApprovalRequest != nil && deeper(jsontext.Value(d.ApprovalRequest.PendingAction)):
		return invalid("approval_request: pending_action nests too deep")
	case deeper(d.Extensions):
		return invalid("the extensions nest too deep")
	}
	return c.checkMesh()
}

func (c *Checkpoint) checkMesh() error {
	m := &c.Mesh
	if m.Entity == "" {
		return nil
	}
	if c.Doc.RunID == "" {
		return missing("run_id")
	}
	last := -1
	for i, n := range m.Notes {
		if n.Message <= last || n.Message >= len(c.Doc.Conversation) {
			return invalid("%s: notes[%d] is about message %d of %d, after one about %d", Extension, i, n.Message, len(c.Doc.Conversation), last)
		}
		last = n.Message
	}
	for i, e := range m.Effects {
		switch e.Status {
		case EffectPending, EffectInFlight, EffectDone, EffectFailed, EffectTimedOut, EffectUnknown:
		default:
			return invalid("%s: effects[%d]: status %q", Extension, i, clip.Text(string(e.Status), 80))
		}
	}
	if deeper(m.More) {
		return invalid("%s nests too deep", Extension)
	}
	return nil
}

// integer reports whether n is absent, or a number without a fraction that is at least
// least and small enough for every JSON reader to represent exactly.
func integer(n aaif.Number, least float64) bool {
	if !n.IsSet() || shortInteger(n) {
		return true
	}
	if v := jsontext.Value(n); v.Kind() != '0' || !v.IsValid() {
		return false
	}
	f := n.Float64()
	return f == math.Trunc(f) && f >= least && math.Abs(f) <= maxInteger
}

// shortInteger reports whether n is a plain integer of a few digits, as nearly all are.
func shortInteger(n aaif.Number) bool {
	if len(n) > 15 || n[0] == '0' && len(n) > 1 {
		return false
	}
	return strings.Trim(string(n), "0123456789") == ""
}

// deeper reports whether a raw value would make its document nest deeper than MaxDepth.
func deeper(v jsontext.Value) bool {
	const outside = 8 // the nesting around any raw value, and some spare
	depth, inString := 0, false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth-outside {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

func missing(member string) error { return invalid("%s is missing", member) }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

package state

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/go-json-experiment/json/jsontext"
)

// standard and version are the sc_standard and sc_version of this release's documents.
const (
	standard = "SC-006"
	version  = "3.0.0"
)

// checksumLen is the length of a checksum, SHA-256 in hex.
const checksumLen = 2 * sha256.Size

// A hole is the place of the checksum in an encoded document: text[from:to] is the whole
// member with its comma, which the hash leaves out, and the hex digits begin at at. It is
// zero if there is no provenance.checksum.
type hole struct{ from, at, to int }

// appendDocument writes the canonical form of a checkpoint, with zeros as its checksum.
func (c *Checkpoint) appendDocument(dst []byte) ([]byte, hole, error) {
	if c.texts == nil {
		c.texts = new(texts)
	}
	t := c.texts
	t.mu.Lock()
	defer t.mu.Unlock()

	d := &c.Doc
	w := writer{b: dst}
	w.begin()
	w.opt("_comment", d.Comment)
	w.text("agent_id", d.AgentID)
	w.opt("agent_version", d.AgentVersion)
	w.approval(d.ApprovalRequest)
	w.text("checkpoint_at", d.CheckpointAt)
	if len(d.Conversation) > 0 {
		w.name("conversation")
		w.b = append(w.b, '[')
		w.fail("conversation", t.messages.append(&w.b, d.Conversation, (*writer).message))
		w.b = append(w.b, ']')
	}
	w.runError(d.Error)
	w.number("iteration", d.Iteration)
	if len(d.MemorySnapshot) > 0 {
		w.name("memory_snapshot")
		w.b = append(w.b, '[')
		w.fail("memory_snapshot", t.memories.append(&w.b, d.MemorySnapshot, (*writer).memory))
		w.b = append(w.b, ']')
	}
	w.pending(d.PendingToolCalls, t)
	w.position(d.PipelinePosition)
	checksum := w.provenance(d.Provenance)
	w.opt("run_id", d.RunID)
	w.text("sc_standard", standard)
	w.text("sc_version", cmp.Or(d.Version, version))
	w.text("state_id", d.StateID)
	w.text("status", string(d.Status))
	w.subagents(d.SubagentStates)
	w.object("variables", d.Variables, t)
	w.extensions(c, t)
	w.end()
	t.forget()
	return w.b, checksum, w.err
}

func (w *writer) approval(a *aaif.ApprovalRequest) {
	if a == nil {
		return
	}
	w.name("approval_request")
	w.begin()
	w.opt("approver_hint", a.ApproverHint)
	w.object("pending_action", a.PendingAction, nil)
	w.opt("requested_at", a.RequestedAt)
	w.opt("timeout_at", a.TimeoutAt)
	w.opt("trigger_description", a.TriggerDescription)
	w.end()
}

func (w *writer) message(m aaif.Message) {
	w.begin()
	w.text("content", m.Content)
	w.text("role", string(m.Role))
	w.opt("timestamp", m.Timestamp)
	w.number("token_count", m.TokenCount)
	w.opt("tool_call_id", m.ToolCallID)
	w.opt("tool_name", m.ToolName)
	w.end()
}

func (w *writer) memory(m aaif.MemoryItem) {
	w.begin()
	w.opt("backend", m.Backend)
	w.opt("captured_at", m.CapturedAt)
	w.text("content", m.Content)
	w.text("key", m.Key)
	w.text("scope", string(m.Scope))
	w.number("ttl_remaining_seconds", m.TTLRemainingSeconds)
	w.end()
}

func (w *writer) runError(e *aaif.RunError) {
	if e == nil {
		return
	}
	w.name("error")
	w.begin()
	w.opt("code", e.Code)
	w.opt("message", e.Message)
	w.opt("occurred_at", e.OccurredAt)
	w.number("retries_remaining", e.RetriesRemaining)
	w.opt("stack_trace", e.StackTrace)
	w.opt("step", e.Step)
	w.end()
}

func (w *writer) pending(calls []aaif.PendingToolCall, t *texts) {
	writeEach(w, "pending_tool_calls", calls, func(p *aaif.PendingToolCall) {
		w.name("arguments")
		if jsontext.Value(p.Arguments).Kind() != '{' {
			w.fail("pending_tool_calls arguments", errNotObject)
		}
		w.cached("pending_tool_calls "+p.ID, p.Arguments, t, (*writer).canonical)
		w.opt("callback_url", p.CallbackURL)
		w.text("id", p.ID)
		w.opt("status", string(p.Status))
		w.opt("submitted_at", p.SubmittedAt)
		w.text("tool_name", p.ToolName)
	})
}

func (w *writer) position(p *aaif.PipelinePosition) {
	if p == nil {
		return
	}
	w.name("pipeline_position")
	w.begin()
	w.texts("completed_steps", p.CompletedSteps)
	w.opt("current_step", p.CurrentStep)
	w.opt("current_subagent", p.CurrentSubagent)
	w.number("parallel_slot", p.ParallelSlot)
	w.texts("remaining_steps", p.RemainingSteps)
	w.end()
}

// provenance writes the member with zeros as its checksum. source_platform is always set:
// if provenance could be empty without the checksum, two readers might disagree whether
// to hash the empty object.
func (w *writer) provenance(p *aaif.StateProvenance) hole {
	if p == nil {
		p = new(aaif.StateProvenance)
	}
	w.name("provenance")
	w.begin()
	w.opt("captured_by", p.CapturedBy)
	h := hole{from: len(w.b)}
	w.text("checksum", emptyChecksum)
	h.to = len(w.b)
	h.at = h.to - 1 - checksumLen
	if w.b[h.from] != ',' {
		h.to++ // the comma after the member is left out with it
	}
	w.opt("migration_token", p.MigrationToken)
	w.text("source_platform", cmp.Or(p.SourcePlatform, Platform))
	w.opt("source_runtime_version", p.SourceRuntimeVersion)
	w.opt("target_platform", p.TargetPlatform)
	w.end()
	return h
}

var emptyChecksum = strings.Repeat("0", checksumLen)

// sum writes the checksum into an encoded document and returns it.
func (h hole) sum(text []byte) string {
	s := sha256.New()
	s.Write(text[:h.from])
	s.Write(text[h.to:])
	var digest [sha256.Size]byte
	hex.Encode(text[h.at:h.at+checksumLen], s.Sum(digest[:0]))
	return string(text[h.at : h.at+checksumLen])
}

func (w *writer) subagents(subs []aaif.SubagentState) {
	writeEach(w, "subagent_states", subs, func(s *aaif.SubagentState) {
		w.text("agent_id", s.AgentID)
		w.text("alias", s.Alias)
		w.value("output", s.Output)
		w.opt("state_id", s.StateID)
		w.opt("status", string(s.Status))
	})
}

var (
	errOursOnly     = errors.New("is written from Checkpoint.Mesh, not given in Extensions")
	errNotExtension = errors.New("does not begin with x-")
)

// extensions writes the x- members, ours in its place among the others. All other names
// of the document sort before them.
func (w *writer) extensions(c *Checkpoint, t *texts) {
	ours := c.Mesh.Entity != ""
	for _, m := range sortedMembers(c.Doc.Extensions) {
		switch {
		case m.name == Extension:
			w.fail(m.name, errOursOnly)
		case !strings.HasPrefix(m.name, "x-"):
			w.fail(m.name, errNotExtension)
		}
		if ours && compareNames(m.name, Extension) > 0 {
			w.name(Extension)
			w.mesh(&c.Mesh, t)
			ours = false
		}
		w.anyName(m.name)
		w.cached("extension "+m.name, json.RawMessage(m.value), t, (*writer).canonical)
	}
	if ours {
		w.name(Extension)
		w.mesh(&c.Mesh, t)
	}
}

type member struct {
	name  string
	value jsontext.Value
}

// sortedMembers returns the members of a JSON object in the order of RFC 8785.
func sortedMembers(object jsontext.Value) []member {
	if len(object) == 0 {
		return nil
	}
	var all []member
	eachMember(object, func(name string, value jsontext.Value) { all = append(all, member{name, value}) })
	slices.SortFunc(all, func(a, b member) int { return compareNames(a.name, b.name) })
	return all
}

// compareNames compares two names by their UTF-16 code units (RFC 8785, section
// 3.2.3).
func compareNames(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

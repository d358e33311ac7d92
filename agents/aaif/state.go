package aaif

import (
	stdjson "encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// A State is an Agent State document: one checkpoint of one run (Agent State and Checkpointing).
type State struct {
	Comment          string            `json:"_comment,omitzero"`
	Standard         string            `json:"sc_standard"`
	Version          string            `json:"sc_version,omitzero"` // default "3.0.0"
	StateID          string            `json:"state_id"`
	AgentID          string            `json:"agent_id"`
	RunID            string            `json:"run_id,omitzero"`
	AgentVersion     string            `json:"agent_version,omitzero"`
	CheckpointAt     string            `json:"checkpoint_at"` // RFC 3339, UTC
	Status           RunStatus         `json:"status"`
	Iteration        Number            `json:"iteration,omitzero"`
	PipelinePosition *PipelinePosition `json:"pipeline_position,omitzero"`
	Conversation     []Message         `json:"conversation,omitzero"`
	MemorySnapshot   []MemoryItem      `json:"memory_snapshot,omitzero"`
	PendingToolCalls []PendingToolCall `json:"pending_tool_calls,omitzero"`
	SubagentStates   []SubagentState   `json:"subagent_states,omitzero"`
	// Variables is one JSON object, unchanged.
	Variables       stdjson.RawMessage `json:"variables,omitzero"`
	ApprovalRequest *ApprovalRequest   `json:"approval_request,omitzero"` // while awaiting_approval
	Error           *RunError          `json:"error,omitzero"`            // when failed
	Provenance      *StateProvenance   `json:"provenance,omitzero"`

	// Extensions holds the x- members as one JSON object, unchanged.
	Extensions jsontext.Value `json:",embed"`
}

// RunStatus is the state of a run at its checkpoint.
type RunStatus string

const (
	RunRunning            RunStatus = "running"
	RunPaused             RunStatus = "paused"
	RunAwaitingApproval   RunStatus = "awaiting_approval"
	RunAwaitingToolResult RunStatus = "awaiting_tool_result"
	RunCompleted          RunStatus = "completed"
	RunFailed             RunStatus = "failed"
	RunMigrating          RunStatus = "migrating"
)

// PipelinePosition is the place of a run in its orchestration.
type PipelinePosition struct {
	CurrentStep     string   `json:"current_step,omitzero"`
	CompletedSteps  []string `json:"completed_steps,omitzero"`
	RemainingSteps  []string `json:"remaining_steps,omitzero"`
	CurrentSubagent string   `json:"current_subagent,omitzero"`
	ParallelSlot    Number   `json:"parallel_slot,omitzero"` // from 0
}

// A Message is one turn of a conversation.
type Message struct {
	Role       MessageRole `json:"role"`
	Content    string      `json:"content"`
	ToolCallID string      `json:"tool_call_id,omitzero"` // for role tool
	ToolName   string      `json:"tool_name,omitzero"`    // for role tool
	TokenCount Number      `json:"token_count,omitzero"`
	Timestamp  string      `json:"timestamp,omitzero"`
}

// MessageRole is the author of a message.
type MessageRole string

const (
	MessageSystem    MessageRole = "system"
	MessageUser      MessageRole = "user"
	MessageAssistant MessageRole = "assistant"
	MessageTool      MessageRole = "tool"
)

// A MemoryItem is a memory as it was at the checkpoint. Embeddings are computed anew on restore.
type MemoryItem struct {
	Scope               MemoryScope `json:"scope"`
	Key                 string      `json:"key"`
	Content             string      `json:"content"`
	Backend             string      `json:"backend,omitzero"`
	CapturedAt          string      `json:"captured_at,omitzero"`
	TTLRemainingSeconds Number      `json:"ttl_remaining_seconds,omitzero"`
}

// A PendingToolCall is a call without a result: on restore it is issued again
// or given up.
type PendingToolCall struct {
	ID          string             `json:"id"`
	ToolName    string             `json:"tool_name"`
	Arguments   stdjson.RawMessage `json:"arguments"`
	Status      ToolCallStatus     `json:"status,omitzero"`
	SubmittedAt string             `json:"submitted_at,omitzero"`
	CallbackURL string             `json:"callback_url,omitzero"`
}

// ToolCallStatus is the progress of a tool call.
type ToolCallStatus string

const (
	ToolCallPending        ToolCallStatus = "pending"
	ToolCallInFlight       ToolCallStatus = "in_flight"
	ToolCallAwaitingResult ToolCallStatus = "awaiting_result"
)

// A SubagentState is the summary of a subagent's run; its full state is a State
// document of its own, found by StateID.
type SubagentState struct {
	Alias   string             `json:"alias"`
	AgentID string             `json:"agent_id"`
	StateID string             `json:"state_id,omitzero"`
	Status  SubagentStatus     `json:"status,omitzero"`
	Output  stdjson.RawMessage `json:"output,omitzero"`
}

// SubagentStatus is the state of a subagent at the checkpoint.
type SubagentStatus string

const (
	SubagentPending   SubagentStatus = "pending"
	SubagentRunning   SubagentStatus = "running"
	SubagentPaused    SubagentStatus = "paused"
	SubagentCompleted SubagentStatus = "completed"
	SubagentFailed    SubagentStatus = "failed"
)

// An ApprovalRequest waits for a person's decision.
type ApprovalRequest struct {
	TriggerDescription string `json:"trigger_description,omitzero"`
	// PendingAction is an object with tool_name, arguments, and members that
	// the platform adds.
	PendingAction stdjson.RawMessage `json:"pending_action,omitzero"`
	RequestedAt   string             `json:"requested_at,omitzero"`
	TimeoutAt     string             `json:"timeout_at,omitzero"`
	ApproverHint  string             `json:"approver_hint,omitzero"`
}

// A RunError is the error of a failed run.
type RunError struct {
	Code             string `json:"code,omitzero"`
	Message          string `json:"message,omitzero"`
	Step             string `json:"step,omitzero"`
	OccurredAt       string `json:"occurred_at,omitzero"`
	RetriesRemaining Number `json:"retries_remaining,omitzero"`
	StackTrace       string `json:"stack_trace,omitzero"` // SHOULD NOT leave the platform
}

// StateProvenance is checked by the receiving platform.
type StateProvenance struct {
	SourcePlatform       string `json:"source_platform,omitzero"`
	SourceRuntimeVersion string `json:"source_runtime_version,omitzero"`
	CapturedBy           string `json:"captured_by,omitzero"`
	TargetPlatform       string `json:"target_platform,omitzero"`
	MigrationToken       string `json:"migration_token,omitzero"`
	Checksum             string `json:"checksum,omitzero"` // SHA-256 of the canonical JSON without this field
}

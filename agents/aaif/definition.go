package aaif

import (
	stdjson "encoding/json"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// Standard is the value of every document's sc_standard.
const Standard = "SC-006"

// Version is the AAIF version that this package implements.
const Version = "3.4.0"

// A Definition is an agent definition: the complete portable declaration of one
// agent (AAIF Document Structure).
//
// In this and the other document types, a field that is absent is a nil pointer
// or slice, an empty string or an unset [Number]; only
// [Definition.WithDefaults] fills in defaults.
type Definition struct {
	Comment    string      `json:"_comment,omitzero"`
	Standard   string      `json:"sc_standard"`
	Version    string      `json:"sc_version,omitzero"` // of AAIF; default "3.4.0"
	AgentID    string      `json:"agent_id,omitzero"`
	Status     Status      `json:"status,omitzero"` // default "active"
	Tags       []string    `json:"tags,omitzero"`
	Agent      Agent       `json:"agent"`
	Provenance *Provenance `json:"provenance,omitzero"`

	// Extensions holds the x- members as one JSON object, untouched. A runtime
	// ignores unknown ones. This project's extension is x-aeemesh, with
	// settings of teams (docs/orchestration.md).
	Extensions jsontext.Value `json:",embed"`
}

// Status is the stage of a definition in its life cycle.
type Status string

const (
	StatusDraft      Status = "draft"
	StatusActive     Status = "active"
	StatusDeprecated Status = "deprecated"
)

// Agent is the operational part of a definition.
type Agent struct {
	Name                 string         `json:"name"`
	Version              string         `json:"version,omitzero"` // of this definition
	Description          string         `json:"description,omitzero"`
	Goal                 string         `json:"goal"`
	Instructions         string         `json:"instructions,omitzero"`
	Skills               []string       `json:"skills,omitzero"`
	RequiredCapabilities []string       `json:"required_capabilities,omitzero"`
	Model                *Model         `json:"model,omitzero"`
	Orchestration        *Orchestration `json:"orchestration,omitzero"`
	Context              []Context      `json:"context,omitzero"`
	Tools                []Tool         `json:"tools,omitzero"`
	Memory               []Memory       `json:"memory,omitzero"`
	Constraints          []string       `json:"constraints,omitzero"` // a runtime MUST enforce each
	IO                   *IO            `json:"io,omitzero"`
	Events               *Events        `json:"events,omitzero"`
	Runtime              *Runtime       `json:"runtime,omitzero"`
	Telemetry            *Telemetry     `json:"telemetry,omitzero"`
	Evaluation           *Evaluation    `json:"evaluation,omitzero"`
	Compliance           *Compliance    `json:"compliance,omitzero"`
}

// Provenance is the origin of a definition.
type Provenance struct {
	AuthoredBy     string   `json:"authored_by,omitzero"`
	SourcePlatform string   `json:"source_platform,omitzero"`
	CreatedAt      string   `json:"created_at,omitzero"` // RFC 3339, UTC
	UpdatedAt      string   `json:"updated_at,omitzero"`
	License        string   `json:"license,omitzero"` // an SPDX id or a URL
	SCRefs         []string `json:"sc_refs,omitzero"`
	Signature      string   `json:"signature,omitzero"` // base64; this package does not verify it
}

// A Context is background knowledge for the agent.
type Context struct {
	Type              ContextType `json:"type"`
	Label             string      `json:"label,omitzero"`
	Value             string      `json:"value"`
	Description       string      `json:"description,omitzero"`
	RefreshTTLSeconds Number      `json:"refresh_ttl_seconds,omitzero"` // for url; 0: fetched once
}

// ContextType is the kind of a Context's value.
type ContextType string

const (
	ContextText      ContextType = "text"
	ContextFile      ContextType = "file"
	ContextURL       ContextType = "url" // untrusted when fetched (Security Considerations)
	ContextDataset   ContextType = "dataset"
	ContextSchemaRef ContextType = "schema_ref"
)

// A Memory is one memory item (Memory Configuration).
type Memory struct {
	Scope             MemoryScope `json:"scope"`
	Key               string      `json:"key,omitzero"`
	Content           string      `json:"content"`
	Backend           string      `json:"backend,omitzero"`
	TTLSeconds        Number      `json:"ttl_seconds,omitzero"` // 0: kept for ever
	EmbeddingModel    string      `json:"embedding_model,omitzero"`
	RetrievalStrategy string      `json:"retrieval_strategy,omitzero"` // similarity, keyword, hybrid or recency
	TopK              Number      `json:"top_k,omitzero"`              // default 5
}

// MemoryScope limits who shares a memory item.
type MemoryScope string

const (
	ScopeUser     MemoryScope = "user"    // never shared across users
	ScopeSession  MemoryScope = "session" // never outlives the session
	ScopeTask     MemoryScope = "task"
	ScopeLongTerm MemoryScope = "long_term"
)

// IO is the contract of an agent that is called by programs.
type IO struct {
	InputSchema  stdjson.RawMessage `json:"input_schema,omitzero"`
	OutputSchema stdjson.RawMessage `json:"output_schema,omitzero"`
	Streaming    *bool              `json:"streaming,omitzero"` // default false
	Format       IOFormat           `json:"format,omitzero"`    // default "text"
	Mode         IOMode             `json:"mode,omitzero"`      // default "sync"
}

// IOFormat is the preferred form of an agent's output.
type IOFormat string

const (
	IOText       IOFormat = "text"
	IOJSON       IOFormat = "json"
	IOMarkdown   IOFormat = "markdown"
	IOStructured IOFormat = "structured"
)

// IOMode is how a caller gets the output.
type IOMode string

const (
	ModeSync  IOMode = "sync"
	ModeAsync IOMode = "async" // the caller gets a job id at once, and the output later
	ModeBatch IOMode = "batch" // the input is a list of inputs
)

// Conditions yields every condition of the definition with its JSON pointer.
func (d *Definition) Conditions() iter.Seq2[string, *Condition] {
	return func(yield func(string, *Condition) bool) {
		if o := d.Agent.Orchestration; o != nil {
			for i := range o.Subagents {
				if c := o.Subagents[i].When; c != nil && !yield(child("/agent/orchestration/subagents", i)+"/when", c) {
					return
				}
			}
			for i := range o.Handoff {
				if !yield(child("/agent/orchestration/handoff", i)+"/condition", &o.Handoff[i].Condition) {
					return
				}
			}
		}
		if e := d.Agent.Events; e != nil {
			for i := range e.Triggers {
				if c := e.Triggers[i].Filter; c != nil && !yield(child("/agent/events/triggers", i)+"/filter", c) {
					return
				}
			}
		}
		if c := d.Agent.Compliance; c != nil && c.HumanInTheLoop != nil && c.HumanInTheLoop.Trigger != nil {
			yield("/agent/compliance/human_in_the_loop/trigger", c.HumanInTheLoop.Trigger)
		}
	}
}

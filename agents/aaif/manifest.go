package aaif

import "github.com/go-json-experiment/json/jsontext"

// A Manifest is a platform manifest: what a runtime offers, published at /.well-known/aaif-manifest.json
// (Capability Negotiation).
type Manifest struct {
	Comment  string   `json:"_comment,omitzero"`
	Standard string   `json:"sc_standard"`
	Version  string   `json:"sc_version"`
	Platform Platform `json:"platform"`

	// Extensions holds the x- members as one JSON object, untouched.
	Extensions jsontext.Value `json:",embed"`
}

// Platform is a runtime and what it can do.
type Platform struct {
	Name              string                `json:"name"`
	Version           string                `json:"version"`
	Vendor            string                `json:"vendor,omitzero"`
	ManifestURL       string                `json:"manifest_url,omitzero"`
	ConformanceLevel  Level                 `json:"aaif_conformance_level"`
	VersionsSupported []string              `json:"aaif_versions_supported,omitzero"`
	Capabilities      *ManifestCapabilities `json:"capabilities,omitzero"`
	IntakeEndpoint    *IntakeEndpoint       `json:"intake_endpoint,omitzero"`
	IssuedAt          string                `json:"manifest_issued_at,omitzero"`
	ExpiresAt         string                `json:"manifest_expires_at,omitzero"`
}

// ManifestCapabilities are the capabilities of a platform, by category. A nil
// bool means that the manifest does not say.
type ManifestCapabilities struct {
	Tool          *ToolCapabilities          `json:"tool,omitzero"`
	Memory        *MemoryCapabilities        `json:"memory,omitzero"`
	Model         *ModelCapabilities         `json:"model,omitzero"`
	Orchestration *OrchestrationCapabilities `json:"orchestration,omitzero"`
	Auth          *AuthCapabilities          `json:"auth,omitzero"`
	State         *StateCapabilities         `json:"state,omitzero"`
	Compliance    *ComplianceCapabilities    `json:"compliance,omitzero"`
	Telemetry     *TelemetryCapabilities     `json:"telemetry,omitzero"`
}

// ToolCapabilities are the tool protocols of a platform.
type ToolCapabilities struct {
	Function      *bool `json:"function,omitzero"`
	MCP           *bool `json:"mcp,omitzero"`
	HTTP          *bool `json:"http,omitzero"`
	OpenAPI       *bool `json:"openapi,omitzero"`
	ParallelCalls *bool `json:"parallel_calls,omitzero"`
}

// MemoryCapabilities are the memory backends of a platform.
type MemoryCapabilities struct {
	InMemory      *bool `json:"in_memory,omitzero"`
	Redis         *bool `json:"redis,omitzero"`
	Postgres      *bool `json:"postgres,omitzero"`
	MongoDB       *bool `json:"mongodb,omitzero"`
	Elasticsearch *bool `json:"elasticsearch,omitzero"`
	Qdrant        *bool `json:"qdrant,omitzero"`
	Pinecone      *bool `json:"pinecone,omitzero"`
	Chroma        *bool `json:"chroma,omitzero"`
	Vector        *bool `json:"vector,omitzero"`
}

// ModelCapabilities are what a platform can do with language models.
type ModelCapabilities struct {
	Providers         []string          `json:"providers,omitzero"`
	RoutingStrategies []RoutingStrategy `json:"routing_strategies,omitzero"` // preferred_first is implied
	Fallback          *bool             `json:"fallback,omitzero"`
	Streaming         *bool             `json:"streaming,omitzero"`
	FunctionCalling   *bool             `json:"function_calling,omitzero"`
	StructuredOutput  *bool             `json:"structured_output,omitzero"`
	Vision            *bool             `json:"vision,omitzero"`
}

// OrchestrationCapabilities are the topologies of a platform.
type OrchestrationCapabilities struct {
	Pipeline           *bool      `json:"pipeline,omitzero"`
	Parallel           *bool      `json:"parallel,omitzero"`
	DynamicRouting     *bool      `json:"dynamic_routing,omitzero"`
	Handoff            *bool      `json:"handoff,omitzero"`
	Consensus          *bool      `json:"consensus,omitzero"`
	MaxSubagents       Number     `json:"max_subagents,omitzero"` // absent: no limit
	ConditionLanguages []Language `json:"condition_languages,omitzero"`
}

// AuthCapabilities are the ways in which a platform authenticates to tools.
type AuthCapabilities struct {
	Bearer   *bool              `json:"bearer,omitzero"`
	APIKey   *bool              `json:"api_key,omitzero"`
	OAuth2   *bool              `json:"oauth2,omitzero"`
	AWSSigV4 *bool              `json:"aws_sigv4,omitzero"`
	Vault    *VaultCapabilities `json:"vault,omitzero"`
}

// VaultCapabilities are the vaults that a platform reads.
type VaultCapabilities struct {
	Supported *bool    `json:"supported,omitzero"`
	Providers []string `json:"providers,omitzero"` // names of the manifest's own, which differ from VaultProvider's
}

// StateCapabilities are what a platform does with Agent State.
type StateCapabilities struct {
	Checkpoint            *bool  `json:"checkpoint,omitzero"` // writes and restores
	LiveMigration         *bool  `json:"live_migration,omitzero"`
	StreamingHandoff      *bool  `json:"streaming_handoff,omitzero"`
	MaxConversationTokens Number `json:"max_conversation_tokens,omitzero"` // 0: no limit
}

// ComplianceCapabilities are the compliance controls of a platform.
type ComplianceCapabilities struct {
	HumanInTheLoop       *bool    `json:"human_in_the_loop,omitzero"`
	AuditLog             *bool    `json:"audit_log,omitzero"`
	PIIScrubbing         *bool    `json:"pii_scrubbing,omitzero"`
	DataResidencyRegions []string `json:"data_residency_regions,omitzero"`
}

// TelemetryCapabilities are the kinds of telemetry that a platform reports.
type TelemetryCapabilities struct {
	OTelTraces  *bool `json:"otel_traces,omitzero"`
	OTelMetrics *bool `json:"otel_metrics,omitzero"`
	OTLPExport  *bool `json:"otlp_export,omitzero"`
}

// IntakeEndpoint is the endpoint to which definitions are posted.
type IntakeEndpoint struct {
	URL          string `json:"url,omitzero"`
	Method       string `json:"method,omitzero"` // default "POST"
	AuthScheme   string `json:"auth_scheme,omitzero"`
	ContentType  string `json:"content_type,omitzero"` // default "application/json"
	MaxBodyBytes Number `json:"max_body_bytes,omitzero"`
}

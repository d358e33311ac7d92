package intents

import "encoding/json"

// Empty is the task payload of aee.status.ping, aee.status.health and aee.spec.query: an
// empty object; their schemas allow no members.
type Empty struct{}

// PingResult answers aee.status.ping.
type PingResult struct {
	Pong bool   `json:"pong"`         // always true: the draft allows nothing else
	TS   string `json:"ts,omitempty"` // when the recipient answered, ISO 8601 in UTC
}

// Health is the status of a [HealthResult].
type Health string

// The three states of health in the draft.
const (
	Healthy   Health = "healthy"   // accepts tasks
	Degraded  Health = "degraded"  // accepts tasks, with restrictions
	Unhealthy Health = "unhealthy" // accepts no tasks
)

// HealthResult answers aee.status.health.
type HealthResult struct {
	Status  Health         `json:"status"`
	Details map[string]any `json:"details,omitempty"`
}

// SpecQueryResult answers aee.spec.query.
type SpecQueryResult struct {
	AEEVersion string   `json:"aee_version"` // the envelope version, field v
	Extensions []string `json:"extensions,omitempty"`
}

// CapabilityListTask asks which intents the recipient serves.
type CapabilityListTask struct {
	NamespaceFilter string `json:"namespace_filter,omitempty"` // see [Registry.List]
	// Schemas is this mesh's addition: true asks for the schemas as well. Any other value
	// is ignored, because the draft allows arbitrary members.
	Schemas any `json:"schemas,omitzero"`
}

// CapabilityListResult answers aee.capability.list.
type CapabilityListResult struct {
	Intents []string `json:"intents"` // sorted; never null on the wire when made by [Registry.AnswerCapabilityList]
	// Schemas is this mesh's addition, which the draft allows: the schemas of the
	// intents, if the task asked for them. An intent without a schema has an empty entry.
	Schemas map[string]IntentSchemas `json:"schemas,omitempty"`
	// Scenarios is this mesh's addition: the scenarios for which the agent publishes schema
	// templates (SDSI).
	Scenarios []string `json:"scenarios,omitempty"`
}

// IntentSchemas are the schemas of an intent's payloads; nil if there is none.
type IntentSchemas struct {
	Task   json.RawMessage `json:"task,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// FetchTask asks for the envelope behind a reference.
type FetchTask struct {
	ID      string `json:"id"`
	Corr    string `json:"corr,omitempty"`
	Locator string `json:"locator,omitempty"`
	Hash    string `json:"hash,omitempty"` // the expected content hash, "sha256:<hex>"
}

// FetchResult answers aee.context.fetch. The envelope in it is an inert record: it is
// never routed (AEE, "Archival and Forensic Snapshots").
type FetchResult struct {
	Found    bool            `json:"found"`
	Envelope json.RawMessage `json:"envelope,omitempty"`
	Hash     string          `json:"hash,omitempty"`
	// Refutations is this mesh's addition, which the draft allows: the rejections of this
	// context so far.
	Refutations []Refutation `json:"refutations,omitempty"`
}

// Refutation is one rejection of a context, as later fetches return it.
type Refutation struct {
	By     string `json:"by"` // entity id of the sender
	Reason string `json:"reason"`
	TS     string `json:"ts"` // when it was received, ISO 8601 in UTC
}

// RefuteTask rejects a context. Its result is a [RefuteResult].
type RefuteTask struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// RefuteResult answers aee.context.refute.
type RefuteResult struct {
	Acknowledged bool `json:"acknowledged"` // later fetches will return the refutation
}

// ValidateTask asks whether a payload conforms to an intent's schema.
type ValidateTask struct {
	Intent            string          `json:"intent"`
	PayloadToValidate json.RawMessage `json:"payload_to_validate"`
	TypeHint          Variant         `json:"type_hint,omitempty"` // [Task] when absent
}

// ValidateResult answers aee.validate.payload.
type ValidateResult struct {
	Valid  bool     `json:"valid"`
	Errors []string `json:"errors,omitempty"`
}

package intents

import "encoding/json"

// Empty is the task payload of aee.status.ping, aee.status.health and
// aee.spec.query: it carries nothing, and their schemas allow nothing in it.
type Empty struct{}

// PingResult answers aee.status.ping.
type PingResult struct {
	Pong bool   `json:"pong"`         // true: the draft allows nothing else
	TS   string `json:"ts,omitempty"` // when the recipient answered, ISO 8601 in UTC
}

// Health is the status of a [HealthResult].
type Health string

// The three states of health that the draft knows.
const (
	Healthy   Health = "healthy"   // takes work
	Degraded  Health = "degraded"  // takes work, with limits
	Unhealthy Health = "unhealthy" // takes no work
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
	// Schemas is this mesh's addition: true asks for the schemas, too. Anything else
	// is no question, for the draft leaves the member open.
	Schemas any `json:"schemas,omitzero"`
}

// CapabilityListResult answers aee.capability.list.
type CapabilityListResult struct {
	Intents []string `json:"intents"` // sorted; never null on the wire when made by [Registry.AnswerCapabilityList]
	// Schemas is this mesh's addition, which the draft's open result leaves room for:
	// the schemas of the intents, where the task asked for them. An intent without a
	// schema has an empty entry.
	Schemas map[string]IntentSchemas `json:"schemas,omitempty"`
}

// IntentSchemas are the schemas of an intent's payloads, nil where there is none.
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

// FetchResult answers aee.context.fetch. The envelope in it is an inert
// record: it is never routed (AEE, "Archival and Forensic Snapshots").
type FetchResult struct {
	Found    bool            `json:"found"`
	Envelope json.RawMessage `json:"envelope,omitempty"`
	Hash     string          `json:"hash,omitempty"`
	// Refutations is this mesh's addition, which the draft's open result
	// leaves room for: who rejected this context since.
	Refutations []Refutation `json:"refutations,omitempty"`
}

// Refutation is one rejection of a context, as later fetches show it.
type Refutation struct {
	By     string `json:"by"` // entity id of the sender
	Reason string `json:"reason"`
	TS     string `json:"ts"` // when it was taken in, ISO 8601 in UTC
}

// RefuteTask rejects a context. Its result is a [RefuteResult].
type RefuteTask struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// RefuteResult answers aee.context.refute.
type RefuteResult struct {
	Acknowledged bool `json:"acknowledged"` // later fetches will show the refutation
}

// ValidateTask asks whether a payload fits an intent's schema.
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

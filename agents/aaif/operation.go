package aaif

import stdjson "encoding/json"

// Events are an agent's triggers and notifications.
type Events struct {
	Triggers   []Trigger `json:"triggers,omitzero"`
	OnStart    string    `json:"on_start,omitzero"`
	OnComplete string    `json:"on_complete,omitzero"`
	OnError    string    `json:"on_error,omitzero"`
	OnToolCall string    `json:"on_tool_call,omitzero"`
}

// A Trigger starts an agent by itself.
type Trigger struct {
	Type        TriggerType `json:"type"`
	Schedule    string      `json:"schedule,omitzero"` // cron, in UTC
	EventName   string      `json:"event_name,omitzero"`
	WebhookPath string      `json:"webhook_path,omitzero"`
	Filter      *Condition  `json:"filter,omitzero"`
}

// TriggerType is the kind of event that a trigger waits for.
type TriggerType string

const (
	TriggerManual       TriggerType = "manual"
	TriggerSchedule     TriggerType = "schedule"
	TriggerWebhook      TriggerType = "webhook"
	TriggerMessage      TriggerType = "message"
	TriggerEvent        TriggerType = "event"
	TriggerAgentHandoff TriggerType = "agent_handoff"
	TriggerFileChange   TriggerType = "file_change"
)

// Runtime holds the production safety controls (Runtime Configuration).
type Runtime struct {
	TimeoutSeconds Number      `json:"timeout_seconds,omitzero"` // for a whole run; a runtime MUST abort the run after it
	MaxRetries     Number      `json:"max_retries,omitzero"`     // default 2
	RetryBackoff   Backoff     `json:"retry_backoff,omitzero"`   // default "exponential"
	Concurrency    Number      `json:"concurrency,omitzero"`     // default 1; a runtime MUST NOT exceed it
	Streaming      *bool       `json:"streaming,omitzero"`       // default false
	AsyncExecution *bool       `json:"async_execution,omitzero"` // default false
	Queue          string      `json:"queue,omitzero"`           // for async execution
	Environment    Environment `json:"environment,omitzero"`     // default "production"
}

// Backoff is how the pause between retries grows.
type Backoff string

const (
	BackoffFixed       Backoff = "fixed"
	BackoffLinear      Backoff = "linear"
	BackoffExponential Backoff = "exponential"
)

// Environment is where a definition is meant to run.
type Environment string

const (
	EnvProduction  Environment = "production"
	EnvStaging     Environment = "staging"
	EnvDevelopment Environment = "development"
	EnvTest        Environment = "test"
)

// Telemetry says what a runtime reports about an agent's runs (Telemetry).
type Telemetry struct {
	Tracing            *bool    `json:"tracing,omitzero"`              // default true
	LogLevel           LogLevel `json:"log_level,omitzero"`            // default "info"
	Metrics            *bool    `json:"metrics,omitzero"`              // default true
	TraceContextHeader string   `json:"trace_context_header,omitzero"` // default "traceparent"
	OTLPEndpoint       string   `json:"otlp_endpoint,omitzero"`
}

// LogLevel is how much an agent logs.
type LogLevel string

const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// Evaluation is how an agent's quality is judged (Evaluation).
type Evaluation struct {
	JudgeModel string     `json:"judge_model,omitzero"`
	Metrics    []Metric   `json:"metrics,omitzero"`
	TestCases  []TestCase `json:"test_cases,omitzero"`
}

// A Metric is a measure of quality with its threshold.
type Metric struct {
	Name       string `json:"name"`
	Threshold  Number `json:"threshold,omitzero"`
	CustomName string `json:"custom_name,omitzero"` // if Name is "custom"
}

// A TestCase is a golden input.
type TestCase struct {
	ID             string             `json:"id"`
	Input          stdjson.RawMessage `json:"input"`
	ExpectedOutput stdjson.RawMessage `json:"expected_output,omitzero"`
	Criteria       string             `json:"criteria,omitzero"`
}

// Compliance holds the rules that must not be dropped on import (Compliance
// Controls).
type Compliance struct {
	SafetyLevel    SafetyLevel     `json:"safety_level,omitzero"`   // default "standard"
	DataResidency  string          `json:"data_residency,omitzero"` // the region that data must not leave: global, EU, US, UK, APAC or custom
	PIIHandling    PIIHandling     `json:"pii_handling,omitzero"`   // default "detect"
	AuditLog       *bool           `json:"audit_log,omitzero"`      // default false
	HumanInTheLoop *HumanInTheLoop `json:"human_in_the_loop,omitzero"`
}

// SafetyLevel governs how a runtime treats capabilities that it lacks; see
// [Negotiate].
type SafetyLevel string

const (
	SafetyMinimal   SafetyLevel = "minimal"
	SafetyStandard  SafetyLevel = "standard"
	SafetyStrict    SafetyLevel = "strict"
	SafetyRegulated SafetyLevel = "regulated"
)

// LeavesNothingOut reports whether the level allows nothing that a document
// declares to be left out: strict, regulated, and any unknown level. An absent
// level is standard.
func (l SafetyLevel) LeavesNothingOut() bool {
	return l != "" && l != SafetyMinimal && l != SafetyStandard
}

// PIIHandling is how personal data is handled.
type PIIHandling string

const (
	PIINone      PIIHandling = "none"
	PIIDetect    PIIHandling = "detect"
	PIIAnonymize PIIHandling = "anonymize"
	PIIEncrypt   PIIHandling = "encrypt"
	PIIReject    PIIHandling = "reject"
)

// HumanInTheLoop requires a person's approval before an agent acts.
type HumanInTheLoop struct {
	Enabled        *bool      `json:"enabled,omitzero"` // default false
	Trigger        *Condition `json:"trigger,omitzero"`
	TimeoutSeconds Number     `json:"timeout_seconds,omitzero"`
}

package aaif

import "github.com/go-json-experiment/json/jsontext"

// A Report is a conformance report: the claims of a platform, published at
// /.well-known/aaif-conformance.json (Conformance Levels).
type Report struct {
	Comment     string         `json:"_comment,omitzero"`
	Standard    string         `json:"sc_standard"`
	Report      ReportInfo     `json:"report"`
	Platform    ReportPlatform `json:"platform"`
	Claims      []Claim        `json:"claims"`
	Supported   *Supports      `json:"supported,omitzero"`
	Attestation *Attestation   `json:"attestation,omitzero"`

	// Extensions holds the x- members as one JSON object, untouched.
	Extensions jsontext.Value `json:",embed"`
}

// ReportInfo says when a report was made, and for which AAIF version.
type ReportInfo struct {
	GeneratedAt  string   `json:"generated_at"` // RFC 3339, UTC
	ExpiresAt    string   `json:"expires_at,omitzero"`
	AAIFVersions []string `json:"aaif_versions"`
	ReportURL    string   `json:"report_url,omitzero"`
}

// ReportPlatform is the platform that a report is about.
type ReportPlatform struct {
	Name        string `json:"name"`
	Version     string `json:"version,omitzero"`
	Vendor      string `json:"vendor,omitzero"`
	ManifestURL string `json:"manifest_url,omitzero"`
	Homepage    string `json:"homepage,omitzero"`
}

// A Claim is the claim of one level in one direction, with the test run that
// supports it.
type Claim struct {
	Level     Level       `json:"level"`
	Direction string      `json:"direction"` // producer, consumer or both: of exports, imports
	TestSuite TestSuite   `json:"test_suite"`
	Roundtrip []Roundtrip `json:"roundtrip,omitzero"`
}

// A TestSuite is a run of a conformance corpus.
type TestSuite struct {
	Corpus string `json:"corpus"`
	Passed Number `json:"passed"`
	Total  Number `json:"total"`
	RanAt  string `json:"ran_at,omitzero"`
	LogURL string `json:"log_url,omitzero"`
}

// A Roundtrip says what is preserved by a conversion to a framework and back.
type Roundtrip struct {
	Framework      string   `json:"framework"`
	LosslessFields []string `json:"lossless_fields"`
	LossyFields    []string `json:"lossy_fields,omitzero"`
}

// Supports lists ids of the six registries.
type Supports struct {
	Providers          []string `json:"providers,omitzero"`
	Capabilities       []string `json:"capabilities,omitzero"`
	ConditionLanguages []string `json:"condition_languages,omitzero"`
	VaultProviders     []string `json:"vault_providers,omitzero"`
	MemoryBackends     []string `json:"memory_backends,omitzero"`
	ToolProtocols      []string `json:"tool_protocols,omitzero"`
}

// Attestation says who vouches for a report.
type Attestation struct {
	AttestedBy string `json:"attested_by,omitzero"`
	Contact    string `json:"contact,omitzero"`
	Signature  string `json:"signature,omitzero"`
}

package aaif

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A PlatformConfig describes a runtime; [PlatformConfig.Manifest] makes a
// manifest from it.
type PlatformConfig struct {
	Name    string // required
	Version string // required
	Vendor  string
	Level   Level    // the highest level fully supported; default Core
	AAIF    []string // versions accepted; default this package's Version

	Offer             Offer
	Providers         []Provider        // providers that the platform routes to
	RoutingStrategies []RoutingStrategy // beyond preferred_first, which is implied
	Regions           []string          // regions for which it guarantees data residency
	Vaults            []VaultProvider
	MaxSubagents      int64 // 0: no limit

	ManifestURL string
	Intake      *IntakeEndpoint
	IssuedAt    time.Time     // zero: left out
	ValidFor    time.Duration // after IssuedAt; zero: left out
}

// capabilitiesExtension lists the capabilities of a platform for which
// manifests have no field, such as io.batch, so that an offer read back from a
// manifest is complete.
const capabilitiesExtension = "x-aeemesh-capabilities"

// Manifest makes a manifest. Capabilities that the offer lacks are left out,
// which means the same as false.
func (p PlatformConfig) Manifest() *Manifest {
	m := &Manifest{
		Standard: Standard,
		Version:  Version,
		Platform: Platform{
			Name: p.Name, Version: p.Version, Vendor: p.Vendor, ManifestURL: p.ManifestURL,
			ConformanceLevel:  p.Level,
			VersionsSupported: p.AAIF,
			Capabilities:      new(ManifestCapabilities),
			IntakeEndpoint:    p.Intake,
		},
	}
	set(&m.Platform.ConformanceLevel, LevelCore)
	if len(p.AAIF) == 0 {
		m.Platform.VersionsSupported = []string{Version}
	}
	if !p.IssuedAt.IsZero() {
		m.Platform.IssuedAt = p.IssuedAt.UTC().Format(time.RFC3339)
		if p.ValidFor > 0 {
			m.Platform.ExpiresAt = p.IssuedAt.Add(p.ValidFor).UTC().Format(time.RFC3339)
		}
	}

	c := m.Platform.Capabilities
	c.allocate()
	left := maps.Clone(p.Offer.Capabilities) // capabilities that no field of the manifest covers yet
	for name, flag := range c.flags() {
		if !p.Offer.Offers(name) || name == CapStateCheckpoint && !p.Offer.Offers(CapStateRestore) {
			continue // the manifest's checkpoint means "can write and restore"
		}
		*flag = new(true)
		delete(left, name)
		delete(left, registryName(name))
		if name == CapStateCheckpoint {
			delete(left, CapStateRestore)
		}
	}
	c.Model.Providers = stringsOf(p.Providers)
	c.Model.RoutingStrategies = p.RoutingStrategies
	if p.MaxSubagents > 0 {
		c.Orchestration.MaxSubagents = Int(p.MaxSubagents)
	}
	if len(p.Offer.Languages) > 0 {
		c.Orchestration.ConditionLanguages = p.Offer.Languages.Sorted()
		delete(left, CapConditionStructured)
	}
	if len(p.Regions) > 0 {
		c.Compliance.DataResidencyRegions = p.Regions
		delete(left, CapDataResidency)
	}
	c.Auth.Vault.Providers = manifestVaults(p.Vaults)
	c.prune()
	if len(left) > 0 {
		list, err := json.Marshal(map[string][]string{capabilitiesExtension: left.Sorted()})
		if err != nil {
			panic("aaif: manifest: " + err.Error()) // cannot happen: the names are text
		}
		m.Extensions = list
	}
	return m
}

// extendedCapabilities reads the extension that Manifest writes.
func (m *Manifest) extendedCapabilities() []string {
	var ext map[string]jsontext.Value
	if len(m.Extensions) == 0 || json.Unmarshal(m.Extensions, &ext) != nil {
		return nil
	}
	var names []string
	if json.Unmarshal(ext[capabilitiesExtension], &names) != nil {
		return nil
	}
	return names
}

// flags yields every boolean of the capabilities by its name. Nil blocks are
// skipped.
func (c *ManifestCapabilities) flags() iter.Seq2[string, **bool] {
	return func(yield func(string, **bool) bool) {
		type flag struct {
			name string
			p    **bool
		}
		var all []flag
		add := func(category string, fields ...flag) {
			for _, f := range fields {
				all = append(all, flag{category + "." + f.name, f.p})
			}
		}
		if t := c.Tool; t != nil {
			add("tool", flag{"function", &t.Function}, flag{"mcp", &t.MCP}, flag{"http", &t.HTTP},
				flag{"openapi", &t.OpenAPI}, flag{"parallel_calls", &t.ParallelCalls})
		}
		if m := c.Memory; m != nil {
			add("memory", flag{"in_memory", &m.InMemory}, flag{"redis", &m.Redis}, flag{"postgres", &m.Postgres},
				flag{"mongodb", &m.MongoDB}, flag{"elasticsearch", &m.Elasticsearch}, flag{"qdrant", &m.Qdrant},
				flag{"pinecone", &m.Pinecone}, flag{"chroma", &m.Chroma}, flag{"vector", &m.Vector})
		}
		if m := c.Model; m != nil {
			add("model", flag{"fallback", &m.Fallback}, flag{"streaming", &m.Streaming},
				flag{"function_calling", &m.FunctionCalling}, flag{"structured_output", &m.StructuredOutput}, flag{"vision", &m.Vision})
		}
		if o := c.Orchestration; o != nil {
			add("orchestration", flag{"pipeline", &o.Pipeline}, flag{"parallel", &o.Parallel},
				flag{"dynamic_routing", &o.DynamicRouting}, flag{"handoff", &o.Handoff}, flag{"consensus", &o.Consensus})
		}
		if a := c.Auth; a != nil {
			add("auth", flag{"bearer", &a.Bearer}, flag{"api_key", &a.APIKey}, flag{"oauth2", &a.OAuth2}, flag{"aws_sigv4", &a.AWSSigV4})
			if a.Vault != nil {
				add("auth", flag{"vault", &a.Vault.Supported})
			}
		}
		if s := c.State; s != nil {
			add("state", flag{"checkpoint", &s.Checkpoint}, flag{"live_migration", &s.LiveMigration}, flag{"streaming_handoff", &s.StreamingHandoff})
		}
		if x := c.Compliance; x != nil {
			add("compliance", flag{"human_in_the_loop", &x.HumanInTheLoop}, flag{"audit_log", &x.AuditLog}, flag{"pii_scrubbing", &x.PIIScrubbing})
		}
		if t := c.Telemetry; t != nil {
			add("telemetry", flag{"otel_traces", &t.OTelTraces}, flag{"otel_metrics", &t.OTelMetrics}, flag{"otlp_export", &t.OTLPExport})
		}
		for _, f := range all {
			if !yield(f.name, f.p) {
				return
			}
		}
	}
}

// allocate makes every block; prune removes those that stayed empty.
func (c *ManifestCapabilities) allocate() {
	*c = ManifestCapabilities{
		Tool: new(ToolCapabilities), Memory: new(MemoryCapabilities), Model: new(ModelCapabilities),
		Orchestration: new(OrchestrationCapabilities), Auth: &AuthCapabilities{Vault: new(VaultCapabilities)},
		State: new(StateCapabilities), Compliance: new(ComplianceCapabilities), Telemetry: new(TelemetryCapabilities),
	}
}

func (c *ManifestCapabilities) prune() {
	dropEmpty(&c.Auth.Vault)
	dropEmpty(&c.Tool)
	dropEmpty(&c.Memory)
	dropEmpty(&c.Model)
	dropEmpty(&c.Orchestration)
	dropEmpty(&c.Auth)
	dropEmpty(&c.State)
	dropEmpty(&c.Compliance)
	dropEmpty(&c.Telemetry)
}

// dropEmpty sets a pointer to an empty block to nil.
func dropEmpty[T any](p **T) {
	if text, err := json.Marshal(*p); err == nil && string(text) == "{}" {
		*p = nil
	}
}

// manifestVaults converts vaults to the manifest's names; "custom" has none.
func manifestVaults(vaults []VaultProvider) []string {
	names := map[VaultProvider]string{
		VaultAWSSecretsManager: "aws_secrets_manager", VaultHashiCorp: "hashicorp_vault",
		VaultAzureKeyVault: "azure_key_vault", VaultGCPSecretManager: "gcp_secret_manager", Vault1Password: "1password",
	}
	var out []string
	for _, v := range vaults {
		if name := names[v]; name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func stringsOf[T ~string](names []T) []string {
	var out []string
	for _, n := range names {
		out = append(out, string(n))
	}
	return out
}

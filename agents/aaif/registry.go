package aaif

import "slices"

// The entries of the six community registries (Extension Registries). Documents
// may use ids with status "standard"; provisional providers are written as
// provider "custom" with a provider_id.

// Providers returns the standard providers, "custom" among them.
func Providers() []Provider {
	return []Provider{
		ProviderOpenAI, ProviderAnthropic, ProviderGoogle, ProviderVertexAI, ProviderMistral, ProviderCohere,
		ProviderGroq, ProviderOllama, ProviderAzureOpenAI, ProviderBedrock, ProviderHuggingFace, ProviderTogether,
		ProviderFireworks, ProviderDeepSeek, ProviderXAI, ProviderOpenRouter, ProviderCustom,
	}
}

// provisionalProvider reports whether an id is registered but not standard.
func provisionalProvider(id string) bool {
	return slices.Contains([]string{"copilot", "cline", "litellm", "vllm", "perplexity"}, id)
}

// Protocols returns the tool protocols.
func Protocols() []Protocol {
	return []Protocol{ProtocolFunction, ProtocolMCP, ProtocolHTTP, ProtocolOpenAPI}
}

// VaultProviders returns the vaults, "custom" among them.
func VaultProviders() []VaultProvider {
	return []VaultProvider{
		VaultAWSSecretsManager, VaultHashiCorp, VaultAzureKeyVault, VaultGCPSecretManager, Vault1Password, VaultCustom,
	}
}

// Capabilities of the registry, which required_capabilities may list.
const (
	CapToolFunction           = "tool.function"
	CapToolMCP                = "tool.mcp"
	CapToolHTTP               = "tool.http"
	CapToolOpenAPI            = "tool.openapi"
	CapMemoryVector           = "memory.vector"
	CapMemoryRedis            = "memory.redis"
	CapMemoryPostgres         = "memory.postgres"
	CapMemoryPinecone         = "memory.pinecone"
	CapMemoryQdrant           = "memory.qdrant"
	CapOrchestrationParallel  = "orchestration.parallel"
	CapOrchestrationHandoff   = "orchestration.handoff"
	CapOrchestrationPipeline  = "orchestration.pipeline"
	CapOrchestrationConsensus = "orchestration.consensus"
	CapConditionStructured    = "condition.structured"
	CapTelemetryOTel          = "telemetry.otel"
	CapDataResidency          = "compliance.data_residency"
	CapHumanInTheLoop         = "compliance.hitl"
	CapAuditLog               = "compliance.audit_log"
	CapIOStreaming            = "io.streaming"
	CapIOAsync                = "io.async"
	CapIOBatch                = "io.batch"
	CapAuthVault              = "auth.vault"
	CapStateCheckpoint        = "state.checkpoint"
	CapStateRestore           = "state.restore"
)

// Capabilities returns the registry's vocabulary.
func Capabilities() []string {
	return []string{
		CapToolFunction, CapToolMCP, CapToolHTTP, CapToolOpenAPI,
		CapMemoryVector, CapMemoryRedis, CapMemoryPostgres, CapMemoryPinecone, CapMemoryQdrant,
		CapOrchestrationParallel, CapOrchestrationHandoff, CapOrchestrationPipeline, CapOrchestrationConsensus,
		CapConditionStructured, CapTelemetryOTel,
		CapDataResidency, CapHumanInTheLoop, CapAuditLog,
		CapIOStreaming, CapIOAsync, CapIOBatch,
		CapAuthVault, CapStateCheckpoint, CapStateRestore,
	}
}

package aaif

import stdjson "encoding/json"

// A Tool is something the agent may call (Tool Definitions).
type Tool struct {
	Name             string             `json:"name"`
	Description      string             `json:"description"`
	Protocol         Protocol           `json:"protocol,omitzero"` // absent is an in-process function
	ParametersSchema stdjson.RawMessage `json:"parameters_schema,omitzero"`
	OutputSchema     stdjson.RawMessage `json:"output_schema,omitzero"`
	Endpoint         string             `json:"endpoint,omitzero"` // untrusted: gate it before use
	Auth             *Auth              `json:"auth,omitzero"`
	CacheTTLSeconds  Number             `json:"cache_ttl_seconds,omitzero"` // 0: no cache
	TimeoutSeconds   Number             `json:"timeout_seconds,omitzero"`
	RateLimit        *RateLimit         `json:"rate_limit,omitzero"`
}

// Protocol is the way in which a tool is called.
type Protocol string

const (
	ProtocolFunction Protocol = "function"
	ProtocolMCP      Protocol = "mcp"
	ProtocolHTTP     Protocol = "http"
	ProtocolOpenAPI  Protocol = "openapi"
)

// EffectiveProtocol returns Protocol. A tool without one has no endpoint and is
// a function.
func (t *Tool) EffectiveProtocol() Protocol {
	if t.Protocol == "" {
		return ProtocolFunction
	}
	return t.Protocol
}

// Auth says where a tool's credential is stored. It never contains a
// credential.
type Auth struct {
	Type     AuthType  `json:"type,omitzero"` // default "none"
	EnvVar   string    `json:"env_var,omitzero"`
	VaultRef *VaultRef `json:"vault_ref,omitzero"` // takes precedence over EnvVar
	Header   string    `json:"header,omitzero"`
	Scopes   []string  `json:"scopes,omitzero"`
	TokenURL string    `json:"token_url,omitzero"`
}

// AuthType is an authentication mechanism.
type AuthType string

const (
	AuthNone     AuthType = "none"
	AuthBearer   AuthType = "bearer"
	AuthAPIKey   AuthType = "api_key"
	AuthBasic    AuthType = "basic"
	AuthOAuth2   AuthType = "oauth2"
	AuthAWSSigV4 AuthType = "aws_sigv4"
	AuthMTLS     AuthType = "mtls" // in the draft's text, not in its schema
)

// A VaultRef names a secret in an external vault.
type VaultRef struct {
	Provider VaultProvider `json:"provider"`
	Path     string        `json:"path"`
	Key      string        `json:"key,omitzero"`
	Version  string        `json:"version,omitzero"`
}

// VaultProvider is a vault of the registry.
type VaultProvider string

const (
	VaultAWSSecretsManager VaultProvider = "aws_secretsmanager"
	VaultHashiCorp         VaultProvider = "hashicorp_vault"
	VaultAzureKeyVault     VaultProvider = "azure_keyvault"
	VaultGCPSecretManager  VaultProvider = "gcp_secretmanager"
	Vault1Password         VaultProvider = "1password"
	VaultCustom            VaultProvider = "custom"
)

// RateLimit limits how often a tool is called.
type RateLimit struct {
	RequestsPerMinute Number `json:"requests_per_minute,omitzero"`
	TokensPerMinute   Number `json:"tokens_per_minute,omitzero"`
}

package aaif

import stdjson "encoding/json"

// Model is an agent's choice of a language model (LLM Provider Routing). All
// fields but MinContextTokens are preferences.
type Model struct {
	Provider         Provider        `json:"provider,omitzero"`
	ProviderID       string          `json:"provider_id,omitzero"` // the provider's name, if Provider is custom
	BaseURL          string          `json:"base_url,omitzero"`    // of an OpenAI-compatible API
	Preferred        string          `json:"preferred,omitzero"`
	Fallbacks        []Fallback      `json:"fallbacks,omitzero"`        // tried in order
	RoutingStrategy  RoutingStrategy `json:"routing_strategy,omitzero"` // default "preferred_first"
	MinContextTokens Number          `json:"min_context_tokens,omitzero"`
	Temperature      Number          `json:"temperature,omitzero"`
	Params           *Params         `json:"params,omitzero"`
	ResponseFormat   ResponseFormat  `json:"response_format,omitzero"` // default "text"
}

// Provider is an LLM provider of the registry.
type Provider string

const (
	ProviderOpenAI      Provider = "openai"
	ProviderAnthropic   Provider = "anthropic"
	ProviderGoogle      Provider = "google"
	ProviderVertexAI    Provider = "vertex_ai"
	ProviderMistral     Provider = "mistral"
	ProviderCohere      Provider = "cohere"
	ProviderGroq        Provider = "groq"
	ProviderOllama      Provider = "ollama"
	ProviderAzureOpenAI Provider = "azure_openai"
	ProviderBedrock     Provider = "bedrock"
	ProviderHuggingFace Provider = "huggingface"
	ProviderTogether    Provider = "together"
	ProviderFireworks   Provider = "fireworks"
	ProviderDeepSeek    Provider = "deepseek"
	ProviderXAI         Provider = "xai"
	ProviderOpenRouter  Provider = "openrouter"
	ProviderCustom      Provider = "custom" // named by Model.ProviderID
)

// A Fallback is a route to take when those before it fail.
type Fallback struct {
	Provider             string `json:"provider"`
	Model                string `json:"model"`
	MaxCostUSDPer1KToken Number `json:"max_cost_usd_per_1k_tokens,omitzero"` // the route is skipped if it costs more
}

// RoutingStrategy is how a runtime chooses among equally available models.
type RoutingStrategy string

const (
	RoutePreferredFirst RoutingStrategy = "preferred_first"
	RouteCost           RoutingStrategy = "cost"
	RouteLatency        RoutingStrategy = "latency"
	RouteQuality        RoutingStrategy = "quality"
	RouteRoundRobin     RoutingStrategy = "round_robin"
)

// ResponseFormat is the form of the model's answers.
type ResponseFormat string

const (
	ResponseText       ResponseFormat = "text"
	ResponseJSON       ResponseFormat = "json"
	ResponseJSONSchema ResponseFormat = "json_schema" // io.output_schema is enforced by the provider
	ResponseMarkdown   ResponseFormat = "markdown"
)

// Params are sampling parameters.
type Params struct {
	MaxTokens        Number   `json:"max_tokens,omitzero"`
	TopP             Number   `json:"top_p,omitzero"`
	FrequencyPenalty Number   `json:"frequency_penalty,omitzero"`
	PresencePenalty  Number   `json:"presence_penalty,omitzero"`
	Stop             []string `json:"stop,omitzero"`
	Seed             Number   `json:"seed,omitzero"`
	// Extended is passed to the provider unchanged; its contents MUST NOT be
	// validated.
	Extended stdjson.RawMessage `json:"extended,omitzero"`
}

package adapters

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/anthropic"
	"github.com/aeemesh/aeemesh/agents/model/google"
	"github.com/aeemesh/aeemesh/agents/model/openai"
)

// API is the protocol of a model's API.
type API string

// The APIs.
const (
	APIOpenAI    API = "openai" // chat completions
	APIAnthropic API = "anthropic"
	APIGoogle    API = "google"    // Gemini, with an API key
	APIVertex    API = "vertex_ai" // Gemini in Google Cloud
	APIBedrock   API = "bedrock"   // Converse of AWS
)

// provider holds the facts about a provider of the registry.
type provider struct {
	api API
	// keys are the variables that may hold its API key; the first that is set
	// counts.
	keys []string
	// keyless providers answer without a key, or find credentials themselves.
	keyless bool
}

// providers are the providers of AAIF, LLM Provider Routing. Package openai has
// the endpoints of the OpenAI-compatible ones.
var providers = map[aaif.Provider]provider{
	aaif.ProviderOpenAI:      {api: APIOpenAI, keys: []string{"OPENAI_API_KEY"}},
	aaif.ProviderAnthropic:   {api: APIAnthropic, keys: []string{"ANTHROPIC_API_KEY"}},
	aaif.ProviderGoogle:      {api: APIGoogle, keys: []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}},
	aaif.ProviderVertexAI:    {api: APIVertex, keyless: true},
	aaif.ProviderMistral:     {api: APIOpenAI, keys: []string{"MISTRAL_API_KEY"}},
	aaif.ProviderCohere:      {api: APIOpenAI, keys: []string{"COHERE_API_KEY", "CO_API_KEY"}},
	aaif.ProviderGroq:        {api: APIOpenAI, keys: []string{"GROQ_API_KEY"}},
	aaif.ProviderOllama:      {api: APIOpenAI, keys: []string{"OLLAMA_API_KEY"}, keyless: true},
	aaif.ProviderAzureOpenAI: {api: APIOpenAI, keys: []string{"AZURE_OPENAI_API_KEY"}},
	aaif.ProviderBedrock:     {api: APIBedrock, keys: []string{"AWS_BEARER_TOKEN_BEDROCK"}, keyless: true},
	aaif.ProviderHuggingFace: {api: APIOpenAI, keys: []string{"HF_TOKEN", "HUGGINGFACE_API_KEY"}},
	aaif.ProviderTogether:    {api: APIOpenAI, keys: []string{"TOGETHER_API_KEY"}},
	aaif.ProviderFireworks:   {api: APIOpenAI, keys: []string{"FIREWORKS_API_KEY"}},
	aaif.ProviderDeepSeek:    {api: APIOpenAI, keys: []string{"DEEPSEEK_API_KEY"}},
	aaif.ProviderXAI:         {api: APIOpenAI, keys: []string{"XAI_API_KEY"}},
	aaif.ProviderOpenRouter:  {api: APIOpenAI, keys: []string{"OPENROUTER_API_KEY"}},
}

// ownEndpoint returns the public endpoint of a provider; empty if each customer
// has its own.
func ownEndpoint(name string) string {
	switch aaif.Provider(name) {
	case aaif.ProviderAnthropic:
		return anthropic.DefaultBaseURL
	case aaif.ProviderGoogle:
		return google.DefaultBaseURL
	case aaif.ProviderCustom:
		return ""
	}
	if p, ok := openai.LookupProvider(name); ok {
		return p.BaseURL
	}
	return ""
}

// known returns the facts about a provider. A provider that is not in the
// registry speaks OpenAI's protocol and has its key in <NAME>_API_KEY.
func known(name string) provider {
	if p, ok := providers[aaif.Provider(name)]; ok {
		return p
	}
	if name == string(aaif.ProviderCustom) { // the document has no provider_id
		return provider{api: APIOpenAI, keyless: true}
	}
	return provider{api: APIOpenAI, keys: []string{keyVariable(name)}, keyless: true}
}

// keyVariable returns the key's variable of a provider: LITE_LLM_API_KEY for
// lite-llm.
func keyVariable(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, id) + "_API_KEY"
}

// keyOwner returns the provider of the registry whose key is in a variable of
// this name, whatever name a document gives the provider.
func keyOwner(variable string) aaif.Provider {
	for name, p := range providers {
		if variable == keyVariable(string(name)) || slices.Contains(p.keys, variable) {
			return name
		}
	}
	return ""
}

func originOf(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

func loopback(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

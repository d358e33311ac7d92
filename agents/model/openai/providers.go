package openai

import (
	"net/url"
	"slices"
	"strings"
)

// Provider describes a provider with this protocol: its endpoint and its deviations. Its name is
// AAIF's model.provider.
type Provider struct {
	// Name is AAIF's name: mistral, groq, and so on; custom for any other endpoint.
	Name string

	// BaseURL is the provider's public endpoint; empty for azure_openai and custom,
	// which have an endpoint for each customer.
	BaseURL string

	quirks
}

// quirks are a provider's deviations from OpenAI's protocol, according to its documentation.
// Deviations of single models are not included: they change often, and this package learns them
// from the endpoint's refusals.
type quirks struct {
	keyHeader      string     // default Authorization, as a bearer token
	maxTokens      string     // the name of max_tokens; default max_tokens
	seed           string     // the name of seed; default seed
	lacks          []string   // standard parameters that it does not have
	maxTemperature float64    // 0: 2, the limit of package model
	penalties      [2]float64 // their range; zero: -2 to 2
	noStreamUsage  bool       // has no stream_options; reports the usage always or never
	strict         bool       // all its models that accept schemas accept strict ones
	noSchema       bool       // has JSON mode only
	formatAlone    bool       // no response_format beside tools
	formatWhole    bool       // no response_format in a stream
	shortIDs       bool       // tool call ids are nine letters and digits
	keep           []string   // members of an assistant's message that it requires in later requests
	keepEmpty      bool       // also as "" if the message has tool calls and lacks them
}

// Names of standard parameters, AAIF model.params.
const (
	temperature      = "temperature"
	topP             = "top_p"
	maxTokens        = "max_tokens"
	frequencyPenalty = "frequency_penalty"
	presencePenalty  = "presence_penalty"
	stop             = "stop"
	seed             = "seed"
	responseFormat   = "response_format"

	maxCompletionTokens = "max_completion_tokens"
	streamOptions       = "stream_options"
	streaming           = "stream"
)

// The providers, with the pages of their documentation that their rows follow,
// as they were in November 2026.
var providers = []Provider{
	// API reference, Create chat completion; Structured model outputs.
	{"openai", DefaultBaseURL, quirks{maxTokens: maxCompletionTokens, strict: true}},
	// Azure OpenAI REST API reference, data plane inference.
	{"azure_openai", "", quirks{keyHeader: "api-key", maxTokens: maxCompletionTokens, strict: true}},
	// API specification, Chat Completion; the form of ids is in the refusal, code 3280.
	{"mistral", "https://api.mistral.ai/v1", quirks{seed: "random_seed", maxTemperature: 1.5, noStreamUsage: true, strict: true, shortIDs: true}},
	// API reference, "not yet supported by any of our models"; Structured Outputs, "Streaming and tool use are not currently supported".
	{"groq", "https://api.groq.com/openai/v1", quirks{maxTokens: maxCompletionTokens, lacks: []string{frequencyPenalty, presencePenalty},
		formatAlone: true, formatWhole: true}},
	// OpenAI compatibility, Supported request fields.
	{"ollama", "http://localhost:11434/v1", quirks{}},
	// Inference Providers, Chat completion.
	{"huggingface", "https://router.huggingface.co/v1", quirks{}},
	// API reference, Create chat completion; Structured outputs.
	{"together", "https://api.together.xyz/v1", quirks{}},
	// Querying text models; reasoning history.
	{"fireworks", "https://api.fireworks.ai/inference/v1", quirks{keep: []string{"reasoning_content"}}},
	// Create Chat Completion; JSON Output; Thinking Mode, tool calls: reasoning_content must be passed back.
	{"deepseek", "https://api.deepseek.com/v1", quirks{lacks: []string{seed}, noSchema: true, keep: []string{"reasoning_content"}, keepEmpty: true}},
	// Chat completions; Reasoning.
	{"xai", "https://api.x.ai/v1", quirks{maxTokens: maxCompletionTokens, strict: true}},
	// API parameters; Reasoning tokens, preserving reasoning blocks.
	{"openrouter", "https://openrouter.ai/api/v1", quirks{strict: true, keep: []string{"reasoning_details"}}},
	// Compatibility API, Supported parameters; Chat, response_format and penalties.
	{"cohere", "https://api.cohere.ai/compatibility/v1", quirks{penalties: [2]float64{0, 1}, noStreamUsage: true, formatAlone: true}},
	{"custom", "", quirks{}},
}

// Providers returns the providers that this package knows by name, in the order of AAIF, with
// custom last.
func Providers() []Provider {
	all := slices.Clone(providers)
	for i := range all {
		all[i].lacks, all[i].keep = slices.Clone(all[i].lacks), slices.Clone(all[i].keep)
	}
	return all
}

// LookupProvider returns the provider with this name.
func LookupProvider(name string) (Provider, bool) {
	for _, p := range Providers() {
		if p.Name == name {
			return p, true
		}
	}
	return Provider{}, false
}

// ownerOf returns the name of the provider whose own endpoint has the host of a base URL; custom if
// there is none.
func ownerOf(base string) string {
	if u, err := url.Parse(base); err == nil {
		for _, p := range providers {
			if own, err := url.Parse(p.BaseURL); err == nil && own.Host != "" && strings.EqualFold(own.Host, u.Host) {
				return p.Name
			}
		}
	}
	return "custom"
}

// at returns the provider with the quirks that apply at a base URL. Many documents name openai as
// the provider of any server with this protocol, and few of these servers have the parameters that
// only OpenAI has.
func (p Provider) at(u *url.URL) Provider {
	own, err := url.Parse(p.BaseURL)
	if p.Name == "openai" && (err != nil || !strings.EqualFold(u.Hostname(), own.Hostname())) {
		p.quirks = quirks{}
	}
	return p
}

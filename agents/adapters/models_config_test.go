package adapters

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

func TestModelsConfigIsChecked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`models: {providers: {openai: {api: soap}}}`:              "/models/providers/openai/api",
		`models: {providers: {custom: {base_url: "https://x"}}}`:  "provider_id",
		`models: {breaker_failures: -1}`:                          "negative",
		`models: {catalog: /no/such/file}`:                        "/models/catalog",
		`models: {providers: {openai: {key: {env: A, file: b}}}}`: "exactly one",
		`models: {providers: {openai: {secret: x}}}`:              "secret",
		`models: {providers: {"": {base_url: "https://x"}}}`:      "/models/providers: a provider has no name",
		`models: {providers: {lab: {base_url: "lab.example"}}}`:   "/models/providers/lab/base_url",
		`models: {providers: {openai: {region: eu-west-1}}}`:      "/models/providers/openai/region: it is of the API bedrock, and openai speaks openai",
		`models: {quality: ["gpt-5*", ""]}`:                       "/models/quality/1",
		`models: {quality: ["*"]}`:                                "/models/quality/0",
		`openapi_servers: {crm: "crm.example"}`:                   "/openapi_servers/crm",
		`openapi_servers: {"": "https://crm.example"}`:            "/openapi_servers/",
		`secrets: {env: ["BILLING_["]}`:                           "/secrets/env/0: BILLING_[",
		`models: {providers: {lab: {betas: [x]}}}`:                "/models/providers/lab/betas",
		`models: {providers: {google: {project: x}}}`:             "/models/providers/google/project",
	} {
		cfg, err := Read([]byte(text))
		if err == nil {
			_, err = New(cfg, Options{})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
}

// An operator's own provider may have any name. A name that is similar to that of a provider of the
// specification is probably a typing error.
func TestProvidersThatAreMistyped(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]aaif.Provider{
		"opneai": "openai", "OpenAI": "openai", "anthropc": "anthropic", "anthropicc": "anthropic", "mistrai": "mistral", "vertexai": "vertex_ai",
		"openai": "", "lab": "", "xai": "", "oai": "", "Groq": "groq", "our-groq": "", "litellm": "", "": "",
	} {
		if got := meantProvider(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	var log strings.Builder
	_, err := New(Config{Models: Models{Providers: map[string]Provider{"opneai": {BaseURL: "https://x.example"}}}}, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil || !strings.Contains(log.String(), "at=/models/providers/opneai meant=openai") {
		t.Errorf("%v, log %q", err, log.String())
	}
}

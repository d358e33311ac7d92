package adapters

import (
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

func TestOfferFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) {
		return "k", name == "ANTHROPIC_API_KEY" || name == "AZURE_OPENAI_API_KEY"
	}
	bare, err := New(Config{}, Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	if got, want := bare.Providers(), []aaif.Provider{aaif.ProviderAnthropic, aaif.ProviderOllama, aaif.ProviderCustom}; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("providers %v, want %v", got, want)
	}
	offer := bare.Offer()
	for name, want := range map[string]bool{aaif.CapToolHTTP: true, aaif.CapToolMCP: true, aaif.CapToolOpenAPI: true, "auth.oauth2": true, aaif.CapAuthVault: false, aaif.CapAuditLog: false} {
		if offer.Offers(name) != want {
			t.Errorf("%s: offered %v, want %v", name, !want, want)
		}
	}
	with, err := New(Config{Models: Models{Providers: map[string]Provider{"azure_openai": {BaseURL: "https://x.example"}, "bedrock": {Region: "eu-west-1"}}}}, Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer with.Close()
	for _, p := range []aaif.Provider{aaif.ProviderAzureOpenAI, aaif.ProviderBedrock} {
		if !slices.Contains(with.Providers(), p) {
			t.Errorf("%s is configured, and not among %v", p, with.Providers())
		}
	}
}

// A provider is offered exactly if a route to it could be used.
func TestProvidersAreThoseThatCanBeReached(t *testing.T) {
	t.Parallel()
	const nothing = "ollama custom"
	for name, c := range map[string]struct {
		env       string
		providers map[string]Provider
		want      string
	}{
		"nothing":                          {"", nil, nothing},
		"a key":                            {"GROQ_API_KEY", nil, "groq " + nothing},
		"the second of two names":          {"GOOGLE_API_KEY", nil, "google " + nothing},
		"an entry without a key":           {"", map[string]Provider{"anthropic": {Betas: []string{"b"}}}, nothing},
		"an endpoint of the operator's":    {"", map[string]Provider{"anthropic": {BaseURL: "https://gateway.example"}}, "anthropic " + nothing},
		"a key that is not set":            {"", map[string]Provider{"openai": {Key: SecretRef{Env: "OURS"}}}, nothing},
		"a key of another name":            {"OURS", map[string]Provider{"openai": {Key: SecretRef{Env: "OURS"}}}, "openai " + nothing},
		"azure without an endpoint":        {"AZURE_OPENAI_API_KEY", nil, nothing},
		"azure as its own tools are told":  {"AZURE_OPENAI_API_KEY AZURE_OPENAI_ENDPOINT", nil, "azure_openai " + nothing},
		"azure without a key":              {"AZURE_OPENAI_ENDPOINT", nil, nothing},
		"credentials of AWS":               {"AWS_ACCESS_KEY_ID", nil, "bedrock " + nothing},
		"credentials of Google Cloud":      {"GOOGLE_APPLICATION_CREDENTIALS", nil, "vertex_ai " + nothing},
		"clouds that the operator entered": {"", map[string]Provider{"bedrock": {Region: "eu-west-1"}, "vertex_ai": {Project: "p"}}, "vertex_ai bedrock " + nothing},
	} {
		env := func(name string) (string, bool) {
			return "https://x.example", slices.Contains(strings.Fields(c.env), name)
		}
		s, err := New(Config{Models: Models{Providers: c.providers}}, Options{Env: env})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, p := range s.Providers() {
			got = append(got, string(p))
		}
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(strings.Fields(c.want))); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

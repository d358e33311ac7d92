package adapters

import (
	"slices"
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

package adapters

import "github.com/aeemesh/aeemesh/agents/aaif"

// Offer is what the set has for agents beside what package agents has by itself:
// the protocols that it speaks, how it authenticates there, routes to models, and
// vaults where the configuration has some; see [agents.Options].Offer.
func (s *Set) Offer() aaif.Offer {
	o := aaif.Offer{Capabilities: aaif.SetOf("model.fallback")}
	for protocol := range s.openers {
		o.Capabilities["tool."+string(protocol)] = struct{}{}
	}
	if _, ok := s.openers[aaif.ProtocolHTTP]; ok {
		for _, kind := range []aaif.AuthType{aaif.AuthBearer, aaif.AuthAPIKey, aaif.AuthOAuth2, aaif.AuthAWSSigV4} {
			o.Capabilities["auth."+string(kind)] = struct{}{}
		}
	}
	if len(s.Vaults()) > 0 {
		o.Capabilities[aaif.CapAuthVault] = struct{}{}
	}
	return o
}

// Providers are the model providers that this configuration reaches: those whose
// key is set, those that the configuration describes, those that need no key, and
// custom ones, which documents describe.
func (s *Set) Providers() []aaif.Provider {
	var out []aaif.Provider
	for _, p := range aaif.Providers() {
		_, reached := s.cfg.Models.Providers[string(p)]
		for _, name := range providers[p].keys {
			if _, set := s.opts.Env(name); set {
				reached = true
			}
		}
		switch p {
		case aaif.ProviderOllama, aaif.ProviderCustom:
			reached = true
		case aaif.ProviderAzureOpenAI: // everybody has an endpoint of his own
			reached = s.cfg.Models.Providers[string(p)].BaseURL != ""
		}
		if reached {
			out = append(out, p)
		}
	}
	return out
}

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
	if s.secrets != nil && len(s.secrets.Vaults) > 0 {
		o.Capabilities[aaif.CapAuthVault] = struct{}{}
	}
	return o
}

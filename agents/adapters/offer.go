package adapters

import (
	"slices"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Offer lists the abilities that the set adds to those of package agents: protocols,
// authentication, routes to models, and vaults if the configuration has any; see
// [agents.Options].Offer.
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

// Providers returns the model providers that this configuration reaches: those
// to which a route can be made here, with a key if they need one, and custom
// ones, which documents describe. It does not contact them.
func (s *Set) Providers() []aaif.Provider {
	return slices.DeleteFunc(aaif.Providers(), func(p aaif.Provider) bool { return !s.reaches(p) })
}

// cloudCredentials are the variables of which at least one is set if a process gets a cloud's own
// credentials. On the cloud's machines credentials may also exist without any of them; only a call
// can show that.
var cloudCredentials = map[aaif.Provider][]string{
	aaif.ProviderBedrock: {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"},
	aaif.ProviderVertexAI: {googleCredentials, "GOOGLE_CLOUD_PROJECT"},
}

func (s *Set) reaches(p aaif.Provider) bool {
	if p == aaif.ProviderCustom {
		return true
	}
	opts := agents.Options{Secret: s.opts.Env}
	e, _, err := s.endpoint("", string(p), false, &aaif.Model{}, opts)
	if err != nil {
		return false
	}
	if variables := cloudCredentials[p]; variables != nil && e.key == nil {
		_, configured := s.cfg.Models.Providers[string(p)]
		_, given := firstSet(opts, variables...)
		return configured || given
	}
	return true
}

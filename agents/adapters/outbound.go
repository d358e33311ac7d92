package adapters

import (
	"errors"
	"maps"
	"net/url"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/openapi"
	"github.com/aeemesh/aeemesh/agents/tool/rest"
)

// openOutbound reads section outbound, and enables the protocols whose
// endpoints it may permit.
func (s *Set) openOutbound(bad *problems) {
	policy, err := outbound.New(s.cfg.Outbound)
	bad.note("", err)
	for _, name := range slices.Sorted(maps.Keys(s.cfg.OpenAPIServers)) {
		if u, err := url.Parse(s.cfg.OpenAPIServers[name]); name == "" || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			bad.note(jsontext.Pointer("/openapi_servers").AppendToken(name), errors.New("it is not the name of a tool and an http or https URL"))
		}
	}
	s.policy = policy
	s.closers = append(s.closers, func() error { policy.Close(); return nil })
	s.openers[aaif.ProtocolHTTP] = func(entry *aaif.Tool) (tool.Source, error) { return rest.Open(entry, s.access()) }
	s.openers[aaif.ProtocolOpenAPI] = func(entry *aaif.Tool) (tool.Source, error) {
		return openapi.Open(entry, s.access(), openapi.Options{Server: s.cfg.OpenAPIServers[entry.Name], Logger: s.opts.Logger})
	}
}

// access returns the policy and the secrets with which tools reach endpoints.
func (s *Set) access() outbound.Access { return outbound.Access{Policy: s.policy, Secrets: s.secrets} }

// RegisteredSkills returns directory.registered_skills of the configuration.
func (s *Set) RegisteredSkills() bool { return s.cfg.Directory.RegisteredSkills }

// Policy returns the policy of section outbound.
func (s *Set) Policy() *outbound.Policy { return s.policy }

package adapters

import (
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/openapi"
	"github.com/aeemesh/aeemesh/agents/tool/rest"
)

// openOutbound reads section outbound, and speaks the protocols whose endpoints
// it may allow.
func (s *Set) openOutbound() error {
	policy, err := outbound.New(s.cfg.Outbound)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	s.policy = policy
	s.closers = append(s.closers, func() error { policy.Close(); return nil })
	s.openers[aaif.ProtocolHTTP] = func(entry *aaif.Tool) (tool.Source, error) { return rest.Open(entry, s.access()) }
	s.openers[aaif.ProtocolOpenAPI] = func(entry *aaif.Tool) (tool.Source, error) {
		return openapi.Open(entry, s.access(), openapi.Options{Server: s.cfg.OpenAPIServers[entry.Name], Logger: s.opts.Logger})
	}
	return nil
}

// access is what tools reach endpoints with.
func (s *Set) access() outbound.Access { return outbound.Access{Policy: s.policy, Secrets: s.secrets} }

// RegisteredSkills is what the configuration says about skills.
func (s *Set) RegisteredSkills() bool { return s.cfg.Directory.RegisteredSkills }

// Policy is what the configuration allows to be reached.
func (s *Set) Policy() *outbound.Policy { return s.policy }

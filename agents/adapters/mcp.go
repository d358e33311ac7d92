package adapters

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// openMCP reads section mcp_servers, and speaks MCP.
func (s *Set) openMCP() error {
	for name, server := range s.cfg.MCPServers {
		if server.Auth == nil {
			continue
		}
		if err := s.secrets.Check(server.Auth); err != nil {
			return fmt.Errorf("configuration: mcp server %s: auth: %w", name, err)
		}
	}
	servers, err := mcp.NewServers(mcp.Config{
		Servers: s.cfg.MCPServers,
		Env:     s.opts.Env,
		Version: s.opts.Version,
		Log:     s.opts.Logger,
		Allow: func(endpoint string) error {
			_, err := s.policy.Check(endpoint)
			return err
		},
		Client: s.mcpClient,
	})
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	s.closers = append(s.closers, servers.Close)
	s.openers[aaif.ProtocolMCP] = servers.Open
	return nil
}

// mcpClient reaches a server. One that the operator lists needs no further word:
// its own address is allowed, wherever it is.
func (s *Set) mcpClient(_ context.Context, endpoint string, auth *aaif.Auth, listed bool) (*http.Client, error) {
	policy := s.policy
	if listed {
		u, err := url.Parse(endpoint)
		if err != nil {
			return nil, err
		}
		cfg := s.cfg.Outbound
		cfg.Allow = append(slices.Clone(cfg.Allow), u.Scheme+"://"+u.Host+"/")
		cfg.Private = append(slices.Clone(cfg.Private), u.Hostname())
		if policy, err = outbound.New(cfg); err != nil {
			return nil, err
		}
	}
	u, err := policy.Check(endpoint)
	if err != nil {
		return nil, err
	}
	return policy.Client(outbound.Options{Endpoint: u, Auth: auth, Secrets: s.secrets, Timeout: -1, MaxResponse: -1})
}

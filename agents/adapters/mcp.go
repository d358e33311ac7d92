package adapters

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// openMCP reads section mcp_servers, and enables the protocol mcp.
func (s *Set) openMCP() error {
	for name, server := range s.cfg.MCPServers {
		s.knowHanded(server.Env)
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
		Log:     slog.New(secret.LogHandler(s.opts.Logger.Handler(), s.Redactor())), // the output of programs may contain anything
		Allow: func(endpoint string) error {
			_, err := s.policy.Check(endpoint)
			return err
		},
		Client: s.mcpClient,
	})
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	for name, server := range s.cfg.MCPServers {
		if server.Auth == nil {
			continue
		}
		if _, err := s.mcpClient(context.Background(), server.URL, server.Auth, true); err != nil {
			return fmt.Errorf("configuration: mcp server %s: %w", name, err)
		}
	}
	s.closers = append(s.closers, servers.Close)
	s.openers[aaif.ProtocolMCP] = servers.Open
	return nil
}

// credentialName matches names of variables that hold a credential.
var credentialName = regexp.MustCompile(`(?i)(token|secret|passw|passphrase|credential|api_?key|access_?key|private_?key|_pat$|_key$)`)

// knowHanded registers the credentials in a program's environment with the
// Redactor, so that they are removed from results and logs.
func (s *Set) knowHanded(env []string) {
	for _, name := range env {
		name, value, given := strings.Cut(name, "=")
		if !credentialName.MatchString(name) {
			continue
		}
		if !given {
			value, _ = s.opts.Env(name)
		}
		if value != "" {
			s.Redactor().Add(secret.New(value))
		}
	}
}

// mcpClient returns the client for a server. The address of a server that the
// operator lists is permitted, wherever it is.
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
	return policy.Client(outbound.Options{Endpoint: u, Auth: auth, Secrets: s.secrets, Discover: mcp.Discover, Timeout: -1, MaxResponse: -1})
}

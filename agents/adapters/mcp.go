package adapters

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// openMCP reads section mcp_servers, and enables the protocol mcp.
func (s *Set) openMCP(bad *problems) {
	right := len(bad.all) == 0
	for _, name := range slices.Sorted(maps.Keys(s.cfg.MCPServers)) {
		bad.note(jsontext.Pointer("/mcp_servers").AppendToken(name), s.checkMCP(name, right))
	}
	if len(bad.all) > 0 {
		return
	}
	servers, err := mcp.NewServers(mcp.Config{
		Servers:  s.cfg.MCPServers,
		Env:      s.opts.Env,
		Version:  s.opts.Version,
		Log:      slog.New(secret.LogHandler(s.opts.Logger.Handler(), s.Redactor())), // the output of programs may contain anything
		Redactor: s.Redactor(),
		Allow: func(endpoint string) error {
			_, err := s.policy.Check(endpoint)
			return err
		},
		Client: s.mcpClient,
	})
	if err != nil {
		bad.note("/mcp_servers", err)
		return
	}
	s.closers = append(s.closers, servers.Close)
	s.openers[aaif.ProtocolMCP] = servers.Open
}

// checkMCP returns what is wrong with a server. credential says whether to check its credential,
// which depends on the sections before this one.
func (s *Set) checkMCP(name string, credential bool) error {
	server := s.cfg.MCPServers[name]
	s.registerCredentials(server.Env)
	if err := server.CheckNamed(name); err != nil {
		return err
	}
	if server.Auth == nil || !credential {
		return nil
	}
	if err := s.secrets.Check(server.Auth); err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	_, err := s.mcpClient(context.Background(), server.URL, server.Auth, true)
	return err
}

// credentialName matches names of variables that hold a credential.
var credentialName = pattern.Of(`(?i)(token|secret|passw|passphrase|credential|api_?key|access_?key|private_?key|_pat$|_key$)`)

// registerCredentials registers the credentials in a program's environment with the Redactor, so that they
// are removed from results and logs: the values of variables whose names suggest a credential or
// that documents may read as one, and values in the form of a credential. It also registers the
// secret parts of URLs.
func (s *Set) registerCredentials(env []string) {
	for _, name := range env {
		name, value, given := strings.Cut(name, "=")
		if !given {
			value, _ = s.opts.Env(name)
		}
		_, formed := aaif.Credential(value)
		if !formed && !credentialName.RE().MatchString(name) && (given || !s.secrets.AllowsEnv(name)) {
			continue
		}
		known := []string{value}
		if u, err := url.Parse(value); err == nil && u.Host != "" {
			if password, ok := u.User.Password(); ok {
				known = append(known, password)
			} else if formed {
				known = append(known, u.User.Username())
			}
			for name, values := range u.Query() {
				if credentialName.RE().MatchString(name) {
					known = append(known, values...)
				}
			}
		}
		for _, text := range known {
			s.Redactor().Pin(secret.New(text)) // it ignores short texts
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

package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// target is the server that an entry means, with the operator's settings.
type target struct {
	Server
	name   string // for messages and logs: the operator's name, or the address
	key    string // identifies the session: the server and the credential
	listed bool
}

// resolve returns the server that an endpoint means, and the capability, which
// selects its tools. AAIF, Tool Definitions: the endpoint is
// mcp://server-name/capability "or a full WebSocket/stdio URI". In full URIs
// the capability is the fragment.
func (c *Config) resolve(endpoint string, auth *aaif.Auth) (target, string, error) {
	scheme, rest, ok := strings.Cut(endpoint, ":")
	if !ok {
		return target{}, "", fmt.Errorf("endpoint %.80q: want mcp://SERVER/TOOL, or an address", endpoint)
	}
	switch strings.ToLower(scheme) {
	case "mcp":
		name, capability, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
		capability, err := url.PathUnescape(capability)
		if err != nil || !strings.HasPrefix(rest, "//") || !ServerName.RE().MatchString(name) {
			return target{}, "", fmt.Errorf("endpoint %.80q: want mcp://SERVER/TOOL", endpoint)
		}
		t, err := c.listed(name, auth)
		return t, capability, err
	case "stdio":
		line, capability, err := unfragment(strings.TrimPrefix(rest, "//"))
		if err == nil {
			line, err = url.PathUnescape(line)
		}
		if err != nil {
			return target{}, "", fmt.Errorf("endpoint: %w", err)
		}
		command := strings.Fields(line)
		if name, ok := c.named(func(s Server) bool { return len(command) > 0 && slices.Equal(s.Command, command) }); ok {
			t, err := c.listed(name, auth)
			return t, capability, err
		}
		return target{}, "", errors.New("a document cannot have a program run that is not a command of the operator's list of MCP servers")
	case "http", "https", "ws", "wss":
		address, capability, err := unfragment(endpoint)
		if err != nil {
			return target{}, "", fmt.Errorf("endpoint: %w", err)
		}
		if err := checkURL(address); err != nil {
			return target{}, "", fmt.Errorf("endpoint: %w", err)
		}
		if name, ok := c.named(func(s Server) bool { return s.URL == address }); ok {
			t, err := c.listed(name, auth)
			return t, capability, err
		}
		if err := c.Allow(address); err != nil {
			return target{}, "", err
		}
		u, _ := url.Parse(address)
		return newTarget(u.Scheme+"://"+u.Host, Server{URL: address, Auth: auth}, false), capability, nil
	}
	return target{}, "", fmt.Errorf("endpoint: MCP is not spoken over %.20q: want mcp, stdio, http, https, ws or wss", scheme)
}

// named returns the first name, in order, of a listed server for which meant returns true.
func (c *Config) named(meant func(Server) bool) (string, bool) {
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		if meant(c.Servers[name]) {
			return name, true
		}
	}
	return "", false
}

// unfragment splits the fragment off a URI.
func unfragment(uri string) (string, string, error) {
	uri, fragment, _ := strings.Cut(uri, "#")
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return "", "", errors.New("the fragment is not percent-encoded as it must be")
	}
	return uri, fragment, nil
}

func (c *Config) listed(name string, auth *aaif.Auth) (target, error) {
	s, ok := c.Servers[name]
	if !ok {
		there := "the list is empty"
		if len(c.Servers) > 0 {
			there = "there are " + strings.Join(slices.Sorted(maps.Keys(c.Servers)), ", ")
		}
		return target{}, fmt.Errorf("no MCP server named %s is on the operator's list: %s", name, there)
	}
	if s.URL != "" && s.Auth == nil {
		s.Auth = auth
	}
	return newTarget(name, s, true), nil
}

func newTarget(name string, s Server, listed bool) target {
	key := name
	if !listed {
		key = s.URL
	}
	if s.Auth != nil {
		ref, _ := json.Marshal(s.Auth) // contains names of secrets, not secrets
		key += "\x00" + string(ref)
	}
	return target{Server: s, name: name, key: key, listed: listed}
}

// selects reports whether a capability selects a tool: by its name, by a prefix
// and *, or all if it is empty.
func selects(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == "" || pattern == name
}

// one reports whether a capability selects exactly one tool.
func one(capability string) bool { return capability != "" && !strings.HasSuffix(capability, "*") }

// permits reports whether the operator permits documents to use a tool of the
// server.
func (t *target) permits(name string) bool {
	return len(t.Tools) == 0 || slices.ContainsFunc(t.Tools, func(p string) bool { return selects(p, name) })
}

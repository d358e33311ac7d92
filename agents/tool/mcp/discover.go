package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/aeemesh/aeemesh/agents/outbound"
)

// Discover finds a server's token endpoint from its answer to a request without
// a token. The server's protected resource metadata (RFC 9728) name its
// authorization server, whose metadata (RFC 8414) name the token endpoint (MCP,
// Authorization). It is for [outbound.Options].Discover.
func Discover(ctx context.Context, refused *http.Response, client *http.Client) (outbound.Grant, error) {
	challenges, err := oauthex.ParseWWWAuthenticate(refused.Header.Values("WWW-Authenticate"))
	if err != nil {
		return outbound.Grant{}, errors.New("the server's WWW-Authenticate cannot be read")
	}
	server := *refused.Request.URL
	server.RawQuery, server.Fragment = "", ""
	resource, err := resourceMetadata(ctx, challenges, &server, client)
	if err != nil {
		return outbound.Grant{}, err
	}
	issuer := resource.AuthorizationServers[0]
	meta, err := auth.GetAuthServerMetadata(ctx, issuer, client)
	switch {
	case err != nil:
		return outbound.Grant{}, fmt.Errorf("the metadata of the authorization server: %w", err)
	case meta == nil || meta.TokenEndpoint == "":
		return outbound.Grant{}, errors.New("the authorization server has no metadata with a token endpoint")
	}
	g := outbound.Grant{TokenURL: meta.TokenEndpoint, Scopes: resource.ScopesSupported, Resource: resource.Resource}
	for _, c := range challenges {
		if c.Scheme == "bearer" && c.Params["scope"] != "" {
			g.Scopes = strings.Fields(c.Params["scope"])
		}
	}
	methods := meta.TokenEndpointAuthMethodsSupported
	g.InBody = slices.Contains(methods, "client_secret_post") && !slices.Contains(methods, "client_secret_basic")
	return g, nil
}

// maxNamed bounds the requests that an answer may cause by the places that it names; each place
// causes two.
const maxNamed = 4

// resourceMetadata reads a server's metadata: from the places that its answer
// names, then from the standard places for its path and for its host.
func resourceMetadata(ctx context.Context, challenges []oauthex.Challenge, server *url.URL, client *http.Client) (*oauthex.ProtectedResourceMetadata, error) {
	const wellKnown = "/.well-known/oauth-protected-resource"
	host := url.URL{Scheme: server.Scheme, Host: server.Host}
	type place struct{ metadata, resource string }
	var places []place
	for _, c := range challenges {
		if at := c.Params["resource_metadata"]; at != "" && len(places) < maxNamed {
			places = append(places, place{at, server.String()}, place{at, host.String()})
		}
	}
	if path := strings.Trim(server.Path, "/"); path != "" {
		places = append(places, place{host.String() + wellKnown + "/" + path, server.String()})
	}
	places = append(places, place{host.String() + wellKnown, host.String()})
	var bad []error
	for _, p := range places {
		found, err := oauthex.GetProtectedResourceMetadata(ctx, p.metadata, p.resource, client)
		switch {
		case err != nil:
			bad = append(bad, err)
		case found == nil || len(found.AuthorizationServers) == 0:
			bad = append(bad, errors.New("the server names no authorization server"))
		default:
			return found, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("the server's metadata: %w", errors.Join(bad...))
}

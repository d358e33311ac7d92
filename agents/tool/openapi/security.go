package openapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
)

// outboundClient is a client that operations with the same server and
// authentication share, and with it their tokens.
type outboundClient struct {
	client *http.Client
	header string // the header that carries the credential, if it has its own
}

// clientKey identifies the operations that share a client.
type clientKey struct {
	origin, kind, in, name, header, token, scopes string
}

// client returns the client of an operation at its server. The auth block and
// the operation's security together determine whether and how the entry's
// credential is sent (AAIF, Tool Definitions).
func (b *builder) client(f found, server *url.URL) (*outboundClient, error) {
	o := outbound.Options{Endpoint: server, Secrets: b.source.access.Secrets}
	if auth := b.source.entry.Auth; auth != nil && auth.Type != "" && auth.Type != aaif.AuthNone {
		o.Auth = auth
	}
	requirements := b.doc.Security
	if f.op.Security != nil {
		requirements = *f.op.Security
	}
	switch {
	case o.Auth == nil:
		if len(requirements) > 0 && !slices.ContainsFunc(requirements, func(r openapi3.SecurityRequirement) bool { return len(r) == 0 }) {
			b.source.log.Warn("an operation asks for a credential, and the entry's auth block has none", "operation", f.String())
		}
	case f.op.Security != nil && len(requirements) == 0:
		o.Auth = nil // the operation needs no credential
	case len(requirements) > 0:
		if !b.fit(&o, requirements) {
			b.source.log.Warn("an operation's security has no alternative that the auth block fits; it is used as it is", "operation", f.String(), "auth", o.Auth.Type)
		}
	}
	if o.Auth != nil && o.Auth.TokenURL != b.source.entry.Auth.TokenURL {
		if _, err := b.source.access.Policy.CheckToken(o.Auth.TokenURL, b.root, server); err != nil {
			return nil, fmt.Errorf("its description's tokenUrl: %w", err)
		}
	}
	key := clientKey{origin: server.Scheme + "://" + server.Host}
	if o.Auth != nil {
		key.kind, key.in, key.name, key.header = string(o.Auth.Type), o.KeyIn, o.KeyName, o.Auth.Header
		key.token, key.scopes = o.Auth.TokenURL, strings.Join(o.Auth.Scopes, " ")
	}
	if c := b.clients[key]; c != nil {
		return c, nil
	}
	client, err := b.source.access.Policy.Client(o)
	if err != nil {
		return nil, err
	}
	c := &outboundClient{client: client, header: credentialHeader(o)}
	b.clients[key] = c
	return c, nil
}

// fit finds the first alternative that consists of a single scheme which fits
// the auth block, and completes the block's settings from it.
func (b *builder) fit(o *outbound.Options, requirements openapi3.SecurityRequirements) bool {
	if b.doc.Components == nil {
		return false
	}
	for _, requirement := range requirements {
		if len(requirement) != 1 {
			continue
		}
		for name, scopes := range requirement {
			ref := b.doc.Components.SecuritySchemes[name]
			if ref != nil && ref.Value != nil && fits(o, ref.Value, scopes, b.root) {
				return true
			}
		}
	}
	return false
}

// fits reports whether a scheme fits the auth block.
func fits(o *outbound.Options, s *openapi3.SecurityScheme, scopes []string, root *url.URL) bool {
	http := func(scheme string) bool { return s.Type == "http" && strings.EqualFold(s.Scheme, scheme) }
	switch o.Auth.Type {
	case aaif.AuthAPIKey:
		if s.Type != "apiKey" || s.Name == "" || s.In != "header" && s.In != "query" && s.In != "cookie" {
			return false
		}
		o.KeyIn, o.KeyName = s.In, s.Name
		return true
	case aaif.AuthBasic:
		return http("basic")
	case aaif.AuthBearer:
		return http("bearer") || s.Type == "oauth2" || s.Type == "openIdConnect"
	case aaif.AuthMTLS:
		return s.Type == "mutualTLS"
	case aaif.AuthAWSSigV4:
		return s.Type == "apiKey" || s.Type == "http"
	case aaif.AuthOAuth2:
		if s.Type != "oauth2" || s.Flows == nil || s.Flows.ClientCredentials == nil {
			return o.Auth.TokenURL != "" && (http("bearer") || s.Type == "oauth2" || s.Type == "openIdConnect")
		}
		auth := *o.Auth
		if auth.TokenURL == "" {
			if u, err := url.Parse(s.Flows.ClientCredentials.TokenURL); err == nil {
				if u.Scheme == "" && root.Scheme != "" { // 3.1: relative to the description's URL
					u = root.ResolveReference(u)
				}
				auth.TokenURL = u.String()
			}
		}
		if len(auth.Scopes) == 0 {
			auth.Scopes = scopes
		}
		o.Auth = &auth
		return auth.TokenURL != ""
	}
	return false
}

// credentialHeader returns the header that an auth block sets, which no
// argument may set.
func credentialHeader(o outbound.Options) string {
	switch {
	case o.Auth == nil || o.Auth.Type == aaif.AuthMTLS || o.KeyIn == "query" || o.KeyIn == "cookie":
		return ""
	case o.KeyIn == "header":
		return o.KeyName
	case o.Auth.Header != "":
		return o.Auth.Header
	case o.Auth.Type == aaif.AuthAPIKey:
		return outbound.DefaultKeyHeader
	}
	return "Authorization"
}

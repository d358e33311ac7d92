package openapi

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// maxServers is how many servers of an operation are considered, and maxServer
// bounds the URL of one with its variables, in bytes.
const (
	maxServers = 16
	maxServer  = 8 << 10
)

// server returns the base URL of an operation: the operator's own, or the first
// permitted one of the description (of the operation, its path, or the whole).
func (b *builder) server(f found) (*url.URL, error) {
	if b.source.server != nil {
		return b.source.server, nil
	}
	servers := b.doc.Servers
	if len(f.item.Servers) > 0 {
		servers = f.item.Servers
	}
	if f.op.Servers != nil && len(*f.op.Servers) > 0 {
		servers = *f.op.Servers
	}
	if len(servers) == 0 {
		servers = openapi3.Servers{{URL: "/"}} // the default, by the OpenAPI Object's servers
	}
	var refused error
	for _, s := range servers[:min(len(servers), maxServers)] {
		if s == nil {
			continue
		}
		u, err := b.resolve(s)
		if err == nil {
			u, err = b.source.access.Policy.Check(u.String())
		}
		if err == nil {
			return u, nil
		}
		if refused == nil {
			refused = err
		}
	}
	return nil, refused
}

// resolve replaces the variables in a server's URL by their defaults, once, and
// makes it absolute.
func (b *builder) resolve(s *openapi3.Server) (*url.URL, error) {
	left := maxServer - len(s.URL)
	raw := place.RE().ReplaceAllStringFunc(s.URL[:min(len(s.URL), maxServer)], func(p string) string {
		v := s.Variables[p[1:len(p)-1]]
		if v == nil {
			return p
		}
		if left -= len(v.Default); left < 0 {
			return ""
		}
		return v.Default
	})
	if left < 0 {
		return nil, fmt.Errorf("server %q is too long", clip.Text(s.URL, 200))
	}
	if strings.ContainsAny(raw, "{}") {
		return nil, fmt.Errorf("server %q has a variable without a default", clip.Text(s.URL, 200))
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("server %q is no URL", clip.Text(raw, 200))
	}
	if u.Scheme == "" {
		if b.root.Scheme == "" {
			return nil, errors.New("the description is a file whose servers are not absolute: the operator has to name one (openapi_servers in the configuration)")
		}
		u = b.root.ResolveReference(u)
	}
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}

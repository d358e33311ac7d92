package perms

import "strings"

// InDomain returns these permissions for a client that names a JetStream domain and is connected to
// a server outside of it, such as a leaf node of a hub: it sends its requests, and writes the keys of
// buckets, below the domain's API prefix. A server of the domain itself takes the prefix away
// before it checks permissions.
func (p Permissions) InDomain(domain string) Permissions {
	if domain == "" {
		return p
	}
	api := "$JS." + domain + ".API."
	publish := make([]string, len(p.Publish))
	for i, s := range p.Publish {
		switch rest, request := strings.CutPrefix(s, jsAPI); {
		case request:
			s = api + rest
		case strings.HasPrefix(s, "$KV."):
			s = api + s
		}
		publish[i] = s
	}
	return Permissions{Publish: publish, Subscribe: p.Subscribe}
}

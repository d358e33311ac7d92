package outbound

import (
	"net/http"
	"net/url"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// Access is what a document's tools reach endpoints with: the policy, and the
// credentials that they may name. The zero Access reaches nothing.
type Access struct {
	Policy  *Policy
	Secrets *secret.Set
}

// Client is [Policy.Client] for a tool at an endpoint.
func (a Access) Client(endpoint *url.URL, auth *aaif.Auth) (*http.Client, error) {
	return a.Policy.Client(Options{Endpoint: endpoint, Auth: auth, Secrets: a.Secrets})
}

// scrub takes the credentials that were given out from a text.
func (a Access) scrub(text string) string { return a.Secrets.Redactor().Scrub(text) }

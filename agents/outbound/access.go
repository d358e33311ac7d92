package outbound

import (
	"net/http"
	"net/url"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// Access is the policy and the credentials with which a document's tools reach
// endpoints. The zero Access reaches nothing.
type Access struct {
	Policy  *Policy
	Secrets *secret.Set
}

// Client calls [Policy.Client] for a tool at an endpoint.
func (a Access) Client(endpoint *url.URL, auth *aaif.Auth) (*http.Client, error) {
	return a.Policy.Client(Options{Endpoint: endpoint, Auth: auth, Secrets: a.Secrets})
}

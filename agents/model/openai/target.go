package openai

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

var (
	headerName = pattern.Of(`^[A-Za-z0-9-]+$`)
	deployment = pattern.Of(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)
)

// target returns the URL for requests to a model, and the header with the key.
func (m *Model) target(name, key string) (string, http.Header, error) {
	base, version := m.base, ""
	if m.provider.Name == "azure_openai" {
		if base, version = azure(m.base, name, m.cfg.APIVersion); version != "" && !deployment.RE().MatchString(name) {
			return "", nil, model.Errorf(model.ErrBadRequest, "%q is not the name of a deployment", name)
		}
	}
	to := base.JoinPath("chat/completions")
	to.ForceQuery = false
	if version != "" {
		to.RawQuery = url.Values{"api-version": {version}}.Encode()
	}
	name = cmp.Or(m.cfg.KeyHeader, m.provider.keyHeader)
	header := make(http.Header)
	switch {
	case key == "":
	case name == "" || strings.EqualFold(name, "Authorization"):
		header.Set("Authorization", "Bearer "+key)
	default:
		header.Set(name, key)
	}
	return to.String(), header, nil
}

// azure returns the base URL of a deployment, and the version of the API to request; "" if it needs
// none.
func azure(base *url.URL, name, version string) (*url.URL, string) {
	path := strings.TrimSuffix(base.Path, "/")
	if strings.HasSuffix(path, "/openai/v1") {
		return base, ""
	}
	version = cmp.Or(version, DefaultAPIVersion)
	if strings.Contains(path, "/deployments/") {
		return base, version
	}
	if !strings.HasSuffix(path, "/openai") {
		base = base.JoinPath("openai")
	}
	return base.JoinPath("deployments", name), version
}

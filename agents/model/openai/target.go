package openai

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/openai/openai-go/v3/option"

	"github.com/aeemesh/aeemesh/agents/model"
)

var (
	headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)
	deployment = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)
)

// target says where a request for a model goes, and with which key.
func (m *Model) target(name, key string) ([]option.RequestOption, error) {
	base, version := m.base, ""
	if m.provider.Name == "azure_openai" {
		if base, version = azure(m.base, name, m.cfg.APIVersion); version != "" && !deployment.MatchString(name) {
			return nil, model.Errorf(model.ErrBadRequest, "%q is not the name of a deployment", name)
		}
	}
	opts := []option.RequestOption{option.WithBaseURL(base.String())}
	if version != "" {
		opts = append(opts, option.WithQuery("api-version", version))
	}
	header := m.cfg.KeyHeader
	if header == "" {
		header = m.provider.keyHeader
	}
	switch {
	case key == "":
		return append(opts, option.WithAPIKey("")), nil
	case header == "" || strings.EqualFold(header, "Authorization"):
		return append(opts, option.WithAPIKey(key)), nil
	}
	return append(opts, option.WithAPIKey(""), option.WithHeader(header, key)), nil
}

// azure is the base URL of a deployment, and the version of the API to ask for.
func azure(base *url.URL, name, version string) (*url.URL, string) {
	path := strings.TrimSuffix(base.Path, "/")
	if strings.HasSuffix(path, "/openai/v1") {
		return base, ""
	}
	if version == "" {
		version = DefaultAPIVersion
	}
	if strings.Contains(path, "/deployments/") {
		return base, version
	}
	if !strings.HasSuffix(path, "/openai") {
		base = base.JoinPath("openai")
	}
	return base.JoinPath("deployments", name), version
}

package google

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
)

// credential resolves the key or the token for one call, and makes the header
// that carries it.
func (m *Model) credential(ctx context.Context) (secret string, header http.Header, err error) {
	resolve, name, prefix, what := m.cfg.Key, "X-Goog-Api-Key", "", "key"
	if m.cfg.Token != nil {
		resolve, name, prefix, what = m.cfg.Token, "Authorization", "Bearer ", "token"
	}
	header = make(http.Header)
	if resolve == nil {
		return "", header, nil
	}
	if secret, err = resolve(ctx); err != nil {
		return "", nil, model.KeyFailure(ctx, what, err)
	}
	if secret = strings.TrimSpace(secret); secret != "" {
		header.Set(name, prefix+secret)
	}
	return secret, header, nil
}

// target returns the URL for the next turn of a model.
func (m *Model) target(name string, stream bool) (string, error) {
	if stream {
		return m.method(name, "streamGenerateContent", "alt=sse")
	}
	return m.method(name, "generateContent", "")
}

// method returns the URL for a model and a method.
func (m *Model) method(name, method, query string) (string, error) {
	if _, err := url.PathUnescape(name); err != nil || name == "" || strings.ContainsAny(name, "?&") || strings.Contains(name, "..") {
		return "", model.Errorf(model.ErrBadRequest, "the name of the model has characters that no model's has")
	}
	u := m.base.JoinPath(m.resource(name) + ":" + method)
	u.RawQuery = query
	return u.String(), nil
}

// resource returns the path of a model below the API's version. A name may be a
// path itself (tunedModels/NAME, projects/…), or on Vertex AI name the publisher
// (PUBLISHER/NAME).
func (m *Model) resource(name string) string {
	if m.cfg.Provider != Vertex {
		if !hasPrefix(name, "models/", "tunedModels/") {
			name = "models/" + name
		}
		return name
	}
	publisher, rest, ok := strings.Cut(name, "/")
	switch {
	case hasPrefix(name, "projects/"):
		return name
	case hasPrefix(name, "models/", "publishers/"):
	case ok:
		name = "publishers/" + publisher + "/models/" + rest
	default:
		name = "publishers/google/models/" + name
	}
	if m.cfg.Project != "" {
		name = "projects/" + m.cfg.Project + "/locations/" + m.cfg.Location + "/" + name
	}
	return name
}

func hasPrefix(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// patience returns for how many seconds this package waits for the answer, for the header
// X-Server-Timeout.
func (m *Model) patience(ctx context.Context) string {
	most := m.client.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline))
	}
	if t := m.client.HTTP.Timeout; t > 0 {
		most = min(most, t)
	}
	return strconv.Itoa(max(1, int(math.Ceil(most.Seconds()))))
}

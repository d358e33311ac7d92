package openapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oasdiff/yaml"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Limits of a description, including the files that it refers to.
const (
	maxBytes     = 8 << 20 // of all files together
	maxDepth     = 100     // levels of JSON
	maxValues    = 1 << 20 // of JSON, in all files together
	maxDocuments = 32
	// maxValidated bounds the number of named schemas times the number of
	// references, to which the validator's time is proportional.
	maxValidated = 500_000
)

// reader reads the files of one description.
type reader struct {
	ctx    context.Context
	source *Source
	root   *url.URL // the URL of the first file; without a scheme for a local file
	left   int64    // bytes
	values int      // left
	files  int      // read
	refs   int      // references in them
}

// read reads and resolves the description.
func (s *Source) read(ctx context.Context) (doc *openapi3.T, root *url.URL, err error) {
	r := &reader{ctx: ctx, source: s, left: maxBytes, values: maxValues}
	data, err := r.first()
	if err != nil {
		return nil, nil, err
	}
	defer func() { // the loader may panic on hostile input
		if p := recover(); p != nil {
			doc, err = nil, fmt.Errorf("its OpenAPI description cannot be read: the reader broke down: %v", p)
		}
	}()
	var head struct {
		OpenAPI any `json:"openapi"`
		Swagger any `json:"swagger"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, nil, errors.New("its OpenAPI description is not an object")
	}
	if v, ok := head.OpenAPI.(string); !ok || !strings.HasPrefix(v, "3.") {
		if head.Swagger != nil {
			return nil, nil, fmt.Errorf("its description is Swagger %.10v; OpenAPI 3.0 and 3.1 are read", head.Swagger)
		}
		return nil, nil, errors.New("its description is not OpenAPI 3.0 or 3.1")
	}
	loader := openapi3.NewLoader()
	loader.Context = ctx
	loader.IsExternalRefsAllowed = true // r.another decides which ones
	loader.ReadFromURIFunc = r.another
	if doc, err = loader.LoadFromDataWithPath(data, r.root); err != nil {
		var f *outbound.Failure
		if errors.As(err, &f) || errors.Is(err, outbound.ErrRefused) || ctx.Err() != nil {
			return nil, nil, err
		}
		return nil, nil, fmt.Errorf("its OpenAPI description cannot be read: %s", clip.Text(oneLine(err.Error()), 500))
	}
	if refs := r.refs; refs*schemasIn(doc) > maxValidated {
		s.log.Debug("an OpenAPI description is too large to be looked over")
	} else if err := doc.Validate(ctx, openapi3.DisableExamplesValidation(), openapi3.DisableSchemaPatternValidation()); err != nil {
		s.log.Warn("an OpenAPI description has faults", "err", clip.Text(oneLine(err.Error()), 500))
	}
	return doc, r.root, nil
}

// schemasIn counts the named schemas of a description.
func schemasIn(doc *openapi3.T) int {
	if doc.Components == nil {
		return 0
	}
	return len(doc.Components.Schemas)
}

// first reads the file that the entry names.
func (r *reader) first() ([]byte, error) {
	if r.source.remote == nil {
		data, name, err := r.source.access.Policy.ReadFile(r.source.location, maxBytes)
		if err != nil {
			return nil, err
		}
		r.root = &url.URL{Path: name}
		return r.plain(data)
	}
	u := *r.source.remote
	u.Fragment = ""
	r.root = &u
	data, err := r.fetch(&u)
	if err != nil {
		return nil, err
	}
	return r.plain(data)
}

// another reads a file that a reference names: it must be below the folder of
// the first.
func (r *reader) another(_ *openapi3.Loader, u *url.URL) ([]byte, error) {
	if r.files++; r.files >= maxDocuments {
		return nil, fmt.Errorf("it refers to more than %d files", maxDocuments)
	}
	folder := path.Dir(r.root.Path)
	below := path.Clean(u.Path) == u.Path && outbound.CheckSegment(u.Path) == nil && strings.HasPrefix(u.Path, strings.TrimSuffix(folder, "/")+"/")
	if !below || u.Scheme != r.root.Scheme || !strings.EqualFold(u.Host, r.root.Host) || u.User != nil {
		return nil, fmt.Errorf("it refers to %q, which is not below its own folder", clip.Text(u.Redacted(), 200))
	}
	if r.root.Scheme == "" {
		data, _, err := r.source.access.Policy.ReadFile(u.Path, r.left)
		if err != nil {
			return nil, err
		}
		return r.plain(data)
	}
	data, err := r.fetch(u)
	if err != nil {
		return nil, err
	}
	return r.plain(data)
}

// fetch gets a file: first without the entry's credential, and with it if the
// server requires one.
func (r *reader) fetch(u *url.URL) ([]byte, error) {
	s := r.source
	request := outbound.Request{Method: http.MethodGet, URL: u, Again: true,
		Header: http.Header{"Accept": {"application/vnd.oai.openapi+json, application/json, application/yaml, */*;q=0.5"}}}
	o := outbound.Options{Endpoint: s.remote, MaxResponse: max(r.left, 1)}
	var refused error
	for {
		client, err := s.access.Policy.Client(o)
		if err != nil {
			return nil, cmp.Or(refused, err) // the credential is for the API only
		}
		answer, err := s.access.Call(r.ctx, client, request)
		if err == nil {
			return answer.Body, nil
		}
		var f *outbound.Failure
		if o.Auth != nil || s.entry.Auth == nil || s.entry.Auth.Type == aaif.AuthNone || !errors.As(err, &f) ||
			f.Status != http.StatusUnauthorized && f.Status != http.StatusForbidden {
			return nil, err
		}
		refused = err
		o.Auth, o.Secrets = s.entry.Auth, s.access.Secrets
	}
}

// plain converts a file to JSON, within the limits.
func (r *reader) plain(data []byte) ([]byte, error) {
	if r.left -= int64(len(data)); r.left < 0 {
		return nil, fmt.Errorf("its OpenAPI description has more than %d bytes", maxBytes)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if text := bytes.TrimSpace(data); len(text) == 0 || text[0] != '{' && text[0] != '[' {
		// This is less strict than for AAIF documents, because many
		// descriptions write statuses as numbers. The library limits the
		// expansion of aliases.
		var err error
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return nil, fmt.Errorf("its OpenAPI description is neither JSON nor YAML: %s", clip.Text(oneLine(err.Error()), 300))
		}
	}
	depth, values, refs := measure(data)
	r.refs += refs
	if r.values -= values; depth > maxDepth || r.values < 0 {
		return nil, fmt.Errorf("its OpenAPI description is too deep or has too many values: at most %d levels and %d values are read", maxDepth, maxValues)
	}
	if !json.Valid(data) {
		return nil, errors.New("its OpenAPI description is no valid JSON")
	}
	return keepExact(data), nil
}

// measure counts levels, values and references of JSON, before it is decoded.
func measure(data []byte) (depth, values, refs int) {
	level, quoted, start := 0, false, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			if quoted && isRef(data[start:i+1]) {
				refs++
			}
			quoted, start = !quoted, i
		case quoted:
		case c == '{' || c == '[':
			level++
			values++
			depth = max(depth, level)
		case c == '}' || c == ']':
			level--
		case c == ',':
			values++
		}
	}
	return depth, values, refs
}

// isRef reports whether a JSON string is "$ref", in any spelling.
func isRef(quoted []byte) bool {
	if bytes.IndexByte(quoted, '\\') < 0 || len(quoted) > len(`"\u0024\u0072\u0065\u0066"`) {
		return string(quoted) == `"$ref"`
	}
	var name string
	return json.Unmarshal(quoted, &name) == nil && name == "$ref"
}

// oneLine converts a text of a library or of the description to one line.
func oneLine(text string) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
}

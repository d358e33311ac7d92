package openapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"golang.org/x/net/http/httpguts"

	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// param is a parameter of an operation.
type param struct {
	name     string // in the request
	arg      string // among the arguments
	in       string // path, query, header or cookie
	style    string
	explode  bool
	required bool
	json     bool // its value is JSON, whatever its style
}

// ours are the headers that no argument may set: those of the connection and of
// credentials, and those that this package sets.
var ours = []string{"Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Cookie", "Expect", "Forwarded",
	"Host", "Idempotency-Key", "Keep-Alive", "Origin", "Proxy-Authorization", "Referer", "Te", "Trailer", "Traceparent", "Tracestate", "Transfer-Encoding", "Upgrade",
	"User-Agent", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"}

// newParam reads a parameter. It returns nil for one that is not an argument.
func newParam(p *openapi3.Parameter) (*param, error) {
	q := &param{name: p.Name, in: p.In, required: p.Required || p.In == "path", style: p.Style}
	switch p.In {
	case "path":
		q.style = cmp.Or(q.style, "simple")
	case "header":
		q.style = cmp.Or(q.style, "simple")
		if !httpguts.ValidHeaderFieldName(p.Name) {
			return nil, fmt.Errorf("%q cannot be a header", clip.Text(p.Name, 100))
		}
		if slices.Contains(ours, http.CanonicalHeaderKey(p.Name)) {
			return nil, nil
		}
	case "query", "cookie":
		q.style = cmp.Or(q.style, "form")
	default:
		return nil, fmt.Errorf("a parameter in %q", clip.Text(p.In, 40))
	}
	fits := map[string][]string{"path": {"simple", "label", "matrix"}, "header": {"simple"}, "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"}, "cookie": {"form"}}
	if !slices.Contains(fits[p.In], q.style) {
		return nil, fmt.Errorf("parameter %q: style %q in %s", clip.Text(p.Name, 100), clip.Text(q.style, 40), p.In)
	}
	if q.explode = q.style == "form"; p.Explode != nil {
		q.explode = *p.Explode
	}
	if p.Schema == nil && len(p.Content) > 0 {
		q.json = true
	}
	return q, nil
}

// schemaOf returns the schema of a parameter's value.
func schemaOf(p *openapi3.Parameter) *openapi3.SchemaRef {
	if p.Schema != nil {
		return p.Schema
	}
	for _, name := range slices.Sorted(maps.Keys(p.Content)) {
		if media := p.Content[name]; media != nil {
			return media.Schema
		}
	}
	return nil
}

// value is an argument in one of the three shapes of OpenAPI's styles.
type value struct {
	scalar string
	list   []string
	object [][2]string // in the order of the names
	kind   byte        // s, l or o
	raw    json.RawMessage
}

// valueOf decodes an argument. ok is false for null.
func (q *param) valueOf(raw json.RawMessage) (v value, ok bool, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return v, false, nil
	}
	if q.json {
		return value{scalar: string(raw), kind: 's'}, true, nil
	}
	if text, isScalar := outbound.Scalar(raw); isScalar {
		return value{scalar: text, kind: 's'}, true, nil
	}
	v.raw = raw
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) == nil {
		v.kind = 'l'
		for _, item := range items {
			v.list = append(v.list, flat(item))
		}
		return v, true, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return v, false, errors.New("it is no JSON")
	}
	v.kind = 'o'
	for _, name := range slices.Sorted(maps.Keys(members)) {
		v.object = append(v.object, [2]string{name, flat(members[name])})
	}
	return v, true, nil
}

// flat returns a value within an array or object as text. Nested values, for
// which styles define nothing, become JSON.
func flat(raw json.RawMessage) string {
	if text, ok := outbound.Scalar(raw); ok {
		return text
	}
	return string(raw)
}

// parts returns the texts of a value in the order in which they are joined.
func (v value) parts(explode bool, escape func(string) (string, error)) (parts []string, err error) {
	add := func(text string) {
		e, bad := escape(text)
		if bad != nil && err == nil {
			err = bad
		}
		parts = append(parts, e)
	}
	switch v.kind {
	case 's':
		add(v.scalar)
	case 'l':
		for _, item := range v.list {
			add(item)
		}
	case 'o':
		for _, m := range v.object {
			add(m[0])
			add(m[1])
			if n := len(parts); explode {
				parts = append(parts[:n-2], parts[n-2]+"="+parts[n-1])
			}
		}
	}
	return parts, err
}

// inPath formats a path parameter (OpenAPI, Style Values: simple, label,
// matrix).
func (q *param) inPath(v value) (string, error) {
	parts, err := v.parts(q.explode, outbound.PathSegment)
	if err == nil && len(parts) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", err
	}
	name := url.PathEscape(q.name)
	switch {
	case q.style == "label" && q.explode:
		return "." + strings.Join(parts, "."), nil
	case q.style == "label":
		return "." + strings.Join(parts, ","), nil
	case q.style == "matrix" && q.explode && v.kind == 'o':
		return ";" + strings.Join(parts, ";"), nil
	case q.style == "matrix" && q.explode:
		return ";" + name + "=" + strings.Join(parts, ";"+name+"="), nil
	case q.style == "matrix":
		return ";" + name + "=" + strings.Join(parts, ","), nil
	}
	return strings.Join(parts, ","), nil
}

// inQuery returns the parameters of a query: name=value, escaped.
func (q *param) inQuery(v value) []string {
	escape := func(s string) (string, error) { return url.QueryEscape(s), nil }
	parts, _ := v.parts(q.explode, escape)
	name := url.QueryEscape(q.name)
	switch {
	case v.kind == 's':
		return []string{name + "=" + parts[0]}
	case len(parts) == 0:
		return nil
	case q.style == "deepObject":
		return deep(q.name, v.raw, maxDeep)
	case q.explode && v.kind == 'o':
		return parts
	case q.explode:
		for i := range parts {
			parts[i] = name + "=" + parts[i]
		}
		return parts
	}
	between := map[string]string{"spaceDelimited": "%20", "pipeDelimited": "%7C"}[q.style]
	return []string{name + "=" + strings.Join(parts, cmp.Or(between, ","))}
}

// maxDeep bounds how deep deepObject goes into a value, and maxDeepName the length in bytes of a
// name that it extends, because each scalar repeats the whole name. Values beyond these bounds
// become JSON.
const (
	maxDeep     = 8
	maxDeepName = 256
)

// deep formats a value in the style deepObject, which OpenAPI defines for objects of scalars.
// Arrays and nested values are written as most servers read them: name[a][b]=1, name[0]=2. Nulls
// and empty values are left out.
func deep(name string, raw json.RawMessage, depth int) (all []string) {
	var items []json.RawMessage
	var members map[string]json.RawMessage
	switch text, ok := outbound.Scalar(raw); {
	case string(raw) == "null":
	case ok || depth == 0 || len(name) > maxDeepName:
		if !ok {
			text = string(raw)
		}
		all = []string{url.QueryEscape(name) + "=" + url.QueryEscape(text)}
	case json.Unmarshal(raw, &items) == nil:
		for i, item := range items {
			all = append(all, deep(fmt.Sprintf("%s[%d]", name, i), item, depth-1)...)
		}
	case json.Unmarshal(raw, &members) == nil:
		for _, m := range slices.Sorted(maps.Keys(members)) {
			all = append(all, deep(name+"["+m+"]", members[m], depth-1)...)
		}
	}
	return all
}

// inHeader formats a header.
func (q *param) inHeader(v value) (string, error) {
	parts, _ := v.parts(q.explode, func(s string) (string, error) { return s, nil })
	text := strings.Join(parts, ",")
	if !httpguts.ValidHeaderFieldValue(text) {
		return "", errors.New("it cannot stand in a header")
	}
	return text, nil
}

// inCookie returns the cookies of a parameter.
func (q *param) inCookie(v value) []string {
	// As in a query, with escapes that are legal in a cookie.
	return q.inQuery(v)
}

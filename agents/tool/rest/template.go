package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// A template is a parsed endpoint: a method, and a URL with placeholders.
type template struct {
	method string
	base   string   // scheme and authority, unchanged
	path   []string // segments, unchanged
	query  []param
}

// param is a query parameter of a template.
type param struct {
	text string // name=value, escaped, with placeholders
}

// maxTemplate bounds an endpoint, in bytes.
const maxTemplate = 4 << 10

var (
	methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
	place   = pattern.Of(`\{([A-Za-z_][A-Za-z0-9_.-]{0,63})\}`)
)

// parseTemplate reads an endpoint.
func parseTemplate(endpoint string) (*template, error) {
	if len(endpoint) > maxTemplate {
		return nil, fmt.Errorf("an endpoint of %d bytes", len(endpoint))
	}
	t := &template{method: http.MethodPost}
	raw := strings.TrimSpace(endpoint)
	if method, rest, ok := strings.Cut(raw, " "); ok {
		t.method, raw = strings.ToUpper(method), strings.TrimSpace(rest)
		if !slices.Contains(methods, t.method) {
			return nil, fmt.Errorf("%.20q is no method: the endpoint is a URL, or one of %s and a URL", method, strings.Join(methods, ", "))
		}
	}
	i := strings.Index(raw, "://")
	if i < 0 {
		return nil, fmt.Errorf("%.200q is no URL", raw)
	}
	if raw, _, _ = strings.Cut(raw, "#"); len(raw) < i+3 {
		return nil, errors.New("the endpoint has no host")
	}
	end := len(raw)
	if j := strings.IndexAny(raw[i+3:], "/?"); j >= 0 {
		end = i + 3 + j
	}
	t.base = raw[:end]
	if strings.ContainsAny(t.base, "{}") {
		return nil, errors.New("arguments can be filled into the path and the query, not into the host")
	}
	path, query, _ := strings.Cut(raw[end:], "?")
	t.path = strings.Split(strings.TrimPrefix(path, "/"), "/")
	for _, text := range strings.Split(query, "&") {
		if text != "" {
			t.query = append(t.query, param{text})
		}
	}
	for _, part := range append(slices.Clone(t.path), query) {
		if strings.ContainsAny(place.RE().ReplaceAllString(part, ""), "{}") {
			return nil, fmt.Errorf("%.100q: a place is {name}, of letters, digits, _, - and .", part)
		}
	}
	if _, err := url.Parse(t.example()); err != nil {
		return nil, fmt.Errorf("%.200q is no URL", raw)
	}
	return t, nil
}

// example is the URL with every placeholder filled in.
func (t *template) example() string {
	return place.RE().ReplaceAllString(t.text(t.path, t.query), "x")
}

func (t *template) text(path []string, query []param) string {
	s := t.base + "/" + strings.Join(path, "/")
	for i, p := range query {
		s += map[bool]string{true: "?", false: "&"}[i == 0] + p.text
	}
	return s
}

// places returns the names of the template's placeholders.
func (t *template) places() []string {
	var names []string
	for _, m := range place.RE().FindAllStringSubmatch(t.text(t.path, t.query), -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// names returns the names of the template's query parameters.
func (t *template) names() []string {
	var names []string
	for _, p := range t.query {
		name, _, _ := strings.Cut(p.text, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		names = append(names, name)
	}
	return names
}

// fill makes a URL, and removes the used arguments from args.
func (t *template) fill(args map[string]json.RawMessage) (*url.URL, error) {
	path, query := slices.Clone(t.path), make([]param, 0, len(t.query))
	used := make(map[string]bool)
	for i, segment := range path {
		filled, err := fillSegment(segment, args, used)
		if err != nil {
			return nil, err
		}
		path[i] = filled
	}
	for _, p := range t.query {
		text, keep, err := fillQuery(p.text, args, used)
		if err != nil {
			return nil, err
		}
		if keep {
			query = append(query, param{text})
		}
	}
	for name := range used {
		delete(args, name)
	}
	return outbound.FilledURL(t.text(path, query))
}

// fillSegment fills one segment of a path.
func fillSegment(segment string, args map[string]json.RawMessage, used map[string]bool) (string, error) {
	if !strings.Contains(segment, "{") {
		return segment, nil
	}
	var bad error
	filled := place.RE().ReplaceAllStringFunc(segment, func(p string) string {
		name := p[1 : len(p)-1]
		used[name] = true
		raw, there := args[name]
		text, ok := outbound.Scalar(raw)
		escaped, err := "", error(nil)
		switch {
		case !there:
			err = errors.New("it is missing")
		case !ok:
			err = errors.New("it has to be a string, a number or a boolean")
		default:
			escaped, err = outbound.PathSegment(text)
		}
		if err != nil && bad == nil {
			bad = fmt.Errorf("argument %s: %w", name, err)
		}
		return escaped
	})
	if bad != nil {
		return "", bad
	}
	// Dots of the template and of arguments may together form a dot segment.
	if err := outbound.CheckSegment(filled); err != nil {
		return "", fmt.Errorf("the arguments together: %w", err)
	}
	return filled, nil
}

// fillQuery fills one parameter of a query. keep is false if an argument that
// it needs is missing.
func fillQuery(text string, args map[string]json.RawMessage, used map[string]bool) (filled string, keep bool, err error) {
	keep = true
	filled = place.RE().ReplaceAllStringFunc(text, func(p string) string {
		name := p[1 : len(p)-1]
		used[name] = true
		raw, there := args[name]
		if !there || string(raw) == "null" {
			keep = false
			return ""
		}
		value, ok := outbound.Scalar(raw)
		if !ok {
			var items []json.RawMessage
			if json.Unmarshal(raw, &items) != nil {
				err = fmt.Errorf("argument %s: an object cannot stand in a query", name)
				return ""
			}
			texts := make([]string, len(items))
			for i, item := range items {
				if texts[i], ok = outbound.Scalar(item); !ok {
					err = fmt.Errorf("argument %s: an array of strings, numbers and booleans can stand in a query", name)
				}
			}
			value = strings.Join(texts, ",")
		}
		return url.QueryEscape(value)
	})
	return filled, keep, err
}

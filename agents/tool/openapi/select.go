package openapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// MaxOperations is how many operations of one description are offered. If there
// are more, a fragment must select some.
const MaxOperations = 128

// found is a selected operation of a description.
type found struct {
	name   string // of the tool
	method string
	path   string
	item   *openapi3.PathItem
	op     *openapi3.Operation
}

func (f found) String() string { return f.method + " " + f.path }

// methods are the methods of operations, in the order in which tools are
// listed.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// operations returns the selected operations, in the order of their paths, or
// of the selection.
func (s *Source) operations(doc *openapi3.T) ([]found, error) {
	var all []found
	paths := doc.Paths.Map()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := paths[path]
		if item == nil {
			continue
		}
		ops := item.Operations()
		for _, method := range methods {
			if op := ops[method]; op != nil {
				all = append(all, found{method: method, path: path, item: item, op: op})
			}
		}
	}
	name(all)
	wanted := s.wanted
	if len(wanted) == 0 && slices.ContainsFunc(all, func(f found) bool { return f.op.OperationID == s.entry.Name }) {
		wanted = []string{s.entry.Name}
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("its OpenAPI description has no operations")
	case len(wanted) == 0 && len(all) > MaxOperations:
		return nil, fmt.Errorf("its OpenAPI description has %d operations, and at most %d are offered: select some in the endpoint, as in #%s", len(all), MaxOperations, all[0].name)
	case len(wanted) == 0:
		return all, nil
	case len(wanted) > MaxOperations:
		return nil, fmt.Errorf("its endpoint selects %d operations, and at most %d are offered", len(wanted), MaxOperations)
	}
	var some []found
	for _, w := range wanted {
		i := slices.IndexFunc(all, func(f found) bool { return f.op.OperationID == w || f.name == w || strings.EqualFold(f.String(), w) })
		if i < 0 {
			return nil, fmt.Errorf("its OpenAPI description has no operation %.100q; there are %s", w, some20(all))
		}
		if !slices.ContainsFunc(some, func(f found) bool { return f.op == all[i].op }) {
			some = append(some, all[i])
		}
	}
	return some, nil
}

// some20 lists some operations, for an error.
func some20(all []found) string {
	var names []string
	for _, f := range all[:min(len(all), 20)] {
		names = append(names, f.name)
	}
	if len(all) > 20 {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// name sets the tool name of each operation: its operationId, or method and
// path, converted to the characters of tool names and made unique.
func name(all []found) {
	taken := make(map[string]bool)
	for i, f := range all {
		raw := f.op.OperationID
		if raw == "" {
			raw = strings.ToLower(f.method) + f.path
		}
		base := legal(raw, "-", 60)
		if first := base[0]; first == '-' || '0' <= first && first <= '9' {
			base = "_" + base[:min(len(base), 59)]
		}
		n := base
		for k := 2; taken[n]; k++ {
			n = fmt.Sprintf("%s_%d", base[:min(len(base), 58)], k)
		}
		taken[n] = true
		all[i].name = n
	}
}

// legal replaces characters that are neither letters, digits, _ nor in more by
// _, without two of these in a row, and truncates the result.
func legal(raw, more string, most int) string {
	var b strings.Builder
	last := byte(0)
	for i := 0; i < len(raw) && b.Len() < most; i++ {
		c := raw[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(more, rune(c)) {
			c = '_'
		}
		if c == '_' && last == '_' {
			continue
		}
		b.WriteByte(c)
		last = c
	}
	out := strings.TrimRight(b.String(), "_")
	if out == "" {
		return "_"
	}
	return out
}

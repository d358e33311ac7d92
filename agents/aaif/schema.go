package aaif

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

//go:embed schema/*.schema.json
var schemaFiles embed.FS

// SchemaJSON returns the JSON Schema (draft 2020-12) for documents of a kind;
// nil for an unknown kind.
func SchemaJSON(k Kind) []byte {
	data, err := fs.ReadFile(schemaFiles, "schema/"+k.schemaFile())
	if err != nil {
		return nil
	}
	return data
}

// A documentSchema is a compiled schema, with its source as a tree for error
// messages.
type documentSchema struct {
	compiled *jsonschema.Schema
	source   map[string]any
	homes    map[string][]string // field name -> pointers of the objects that have it
}

// schemas compiles all four schemas, on first use.
var schemas = sync.OnceValue(func() map[Kind]*documentSchema {
	m := make(map[Kind]*documentSchema)
	for _, k := range Kinds() {
		m[k] = compileDocumentSchema(k)
	}
	return m
})

func compileDocumentSchema(k Kind) *documentSchema {
	tree, problems := decodeJSON(SchemaJSON(k), maxMaxDepth)
	if problems != nil {
		panic(fmt.Sprintf("aaif: schema of %s: %v", k, problems))
	}
	source := tree.(map[string]any)
	s := &documentSchema{source: source, homes: make(map[string][]string)}
	compiled, err := jsonschema.CompileString(source["$id"].(string), string(SchemaJSON(k)))
	if err != nil {
		panic(fmt.Sprintf("aaif: schema of %s: %v", k, err))
	}
	s.compiled = compiled
	s.collectHomes(source, "", 0)
	return s
}

// collectHomes records which objects of a document have which fields. "*"
// stands for array items.
func (s *documentSchema) collectHomes(node any, pointer string, depth int) {
	schema := s.resolve(node)
	if schema == nil || depth > 12 {
		return
	}
	if items, ok := schema["items"]; ok {
		s.collectHomes(items, pointer+"/*", depth+1)
	}
	props, _ := schema["properties"].(map[string]any)
	for name, sub := range props {
		s.homes[name] = append(s.homes[name], pointer)
		s.collectHomes(sub, pointer+"/"+name, depth+1)
	}
}

// resolve follows the schema's own $ref, if it has one.
func (s *documentSchema) resolve(node any) map[string]any {
	schema, _ := node.(map[string]any)
	if ref, ok := schema["$ref"].(string); ok {
		return s.resolve(s.lookup(strings.TrimPrefix(ref, "#")))
	}
	return schema
}

// lookup returns the part of the source at a pointer, which may be percent-encoded as in a URL fragment.
func (s *documentSchema) lookup(pointer string) any {
	if decoded, err := url.PathUnescape(pointer); err == nil {
		pointer = decoded
	}
	return lookup(s.source, pointer)
}

// lookup returns the value at a pointer in a tree, or nil.
func lookup(tree any, pointer string) any {
	for _, token := range splitPointer(pointer) {
		switch node := tree.(type) {
		case map[string]any:
			tree = node[token]
		case []any:
			i, ok := index(token, len(node))
			if !ok {
				return nil
			}
			tree = node[i]
		default:
			return nil
		}
	}
	return tree
}

// index reads an array index of a pointer.
func index(token string, length int) (int, bool) {
	if token == "" || len(token) > 9 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(token) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n < length
}

// validateTree validates a decoded document against the schema of its kind and
// reports all violations.
func validateTree(k Kind, tree any) []Problem {
	s := schemas()[k]
	err := s.compiled.Validate(tree)
	if err == nil {
		return nil
	}
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return []Problem{errorf("", RuleSchema, "the document cannot be validated: %v", err)}
	}
	causes := slices.Collect(leaves(ve))
	slices.SortFunc(causes, func(a, b *jsonschema.ValidationError) int {
		return cmp.Compare(a.InstanceLocation, b.InstanceLocation) // a fixed order, so that the same problems are cut off each time
	})
	var ps []Problem
	for _, leaf := range causes {
		if ps = append(ps, s.explain(tree, leaf)...); len(ps) > maxProblems {
			break
		}
	}
	return ps
}

// leaves yields the errors that have no further cause.
func leaves(ve *jsonschema.ValidationError) func(yield func(*jsonschema.ValidationError) bool) {
	var walk func(ve *jsonschema.ValidationError, yield func(*jsonschema.ValidationError) bool) bool
	walk = func(ve *jsonschema.ValidationError, yield func(*jsonschema.ValidationError) bool) bool {
		if len(ve.Causes) == 0 {
			return yield(ve)
		}
		for _, cause := range ve.Causes {
			if !walk(cause, yield) {
				return false
			}
		}
		return true
	}
	return func(yield func(*jsonschema.ValidationError) bool) { walk(ve, yield) }
}

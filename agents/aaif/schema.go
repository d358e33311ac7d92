package aaif

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/intents/schema"
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
	compiled *schema.Schema
	source   map[string]any
	homes    map[string][]string // field name -> pointers of the objects that have it
}

// schemas has the schema of each kind, which is compiled when it is first needed.
var schemas = func() map[Kind]func() *documentSchema {
	m := make(map[Kind]func() *documentSchema)
	for _, k := range Kinds() {
		m[k] = sync.OnceValue(func() *documentSchema { return compileDocumentSchema(k) })
	}
	return m
}()

func compileDocumentSchema(k Kind) *documentSchema {
	tree, problems := decodeJSON(SchemaJSON(k), maxMaxDepth)
	if problems != nil {
		panic(fmt.Sprintf("aaif: schema of %s: %v", k, problems))
	}
	source := tree.(map[string]any)
	s := &documentSchema{source: source, homes: make(map[string][]string)}
	compiled, err := schema.Compile(SchemaJSON(k))
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
	part := s.resolve(node)
	if part == nil || depth > 12 {
		return
	}
	if items, ok := part["items"]; ok {
		s.collectHomes(items, pointer+"/*", depth+1)
	}
	props, _ := part["properties"].(map[string]any)
	for name, sub := range props {
		s.homes[name] = append(s.homes[name], pointer)
		s.collectHomes(sub, pointer+"/"+name, depth+1)
	}
}

// resolve follows the schema's own $ref, if it has one.
func (s *documentSchema) resolve(node any) map[string]any {
	part, _ := node.(map[string]any)
	if ref, ok := part["$ref"].(string); ok {
		return s.resolve(lookup(s.source, strings.TrimPrefix(ref, "#")))
	}
	return part
}

// lookup returns the value at a pointer in a tree, or nil.
func lookup(tree any, pointer string) any {
	for token := range jsontext.Pointer(pointer).Tokens() {
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

// maxViolations bounds how many violations are looked for in a document. A list of
// problems is cut after the first [maxProblems] places, so it exceeds that number.
const maxViolations = 10 * maxProblems

// validateTree validates a document, given as a tree and as the JSON text that the tree
// was decoded from, against the schema of its kind, and reports all violations.
func validateTree(k Kind, tree any, text []byte) []Problem {
	s := schemas[k]()
	violations, _ := s.compiled.Examine(text, maxViolations)
	for i, v := range violations {
		if v.Keyword == "additionalProperties" { // explained for the whole object
			violations[i].Pointer = v.Pointer[:strings.LastIndexByte(v.Pointer, '/')]
		}
	}
	sorted.By(violations, func(a, b schema.Problem) int {
		return cmp.Compare(a.Pointer, b.Pointer) // of one value, what it lacks comes before its unknown fields
	})
	violations = slices.CompactFunc(violations, func(a, b schema.Problem) bool {
		return a.Pointer == b.Pointer && a.Place == b.Place && a.Keyword == b.Keyword
	})
	var ps []Problem
	for _, v := range violations {
		if ps = append(ps, s.explain(tree, v)...); len(ps) > maxProblems {
			break
		}
	}
	return ps
}

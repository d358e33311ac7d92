package aaif

import (
	stdjson "encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

var exhaustive = flag.Bool("exhaustive", false, "hold the schemas against the published ones at every place, with every word: minutes")

// TestSchemasAgreeWithThePublishedOnes holds our schemas against the published ones: over the corpus, over our
// full documents, and over every one of these with one thing changed in every place. The verdicts must be
// equal, but for the difference that the package's documentation names: mtls.
func TestSchemasAgreeWithThePublishedOnes(t *testing.T) {
	if testing.Short() {
		t.Skip("it compares tens of thousands of verdicts")
	}
	dir := filepath.Join(corpus(t), "schema")
	seeds := make(map[Kind][]any)
	for _, files := range []map[string][]byte{corpusFiles(t, "valid"), corpusFiles(t, "invalid"), fullDocuments(t)} {
		for _, data := range files {
			v := tree(t, data)
			seeds[kindOf(v)] = append(seeds[kindOf(v)], v)
		}
	}
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(dir, kind.schemaFile()))
			if err != nil {
				t.Fatal(err)
			}
			reference, err := jsonschema.CompileString("reference:"+kind.schemaFile(), string(text))
			if err != nil {
				t.Fatal(err)
			}
			ours := schemas[kind]().compiled
			words := wordsOf(tree(t, text), nil)
			compared, mtls := 0, 0
			compare := func(doc any, change string) {
				compared++
				want := reference.Validate(doc)
				got, _ := ours.Examine(encoded(t, doc), 1)
				if (want == nil) == (got == nil) {
					return
				}
				if place := strings.Fields(change)[0]; got == nil && (strings.HasSuffix(place, "/auth/type") && strings.HasSuffix(change, `= "mtls"`) ||
					strings.HasSuffix(place, "/auth") && strings.HasSuffix(change, `= {"type":"mtls"}`)) {
					mtls++
					return
				}
				t.Errorf("%s:\nreference %v\nours      %v", change, want, got)
			}
			if len(seeds[kind]) == 0 {
				t.Fatal("no seeds")
			}
			m := mutator{words: words, seen: make(map[string]bool), compare: compare}
			for _, other := range slices.Concat(scalars, composites) {
				compare(other, fmt.Sprintf("(root) = %v", other))
			}
			for i, seed := range seeds[kind] {
				compare(seed, fmt.Sprintf("seed %d as it is", i))
				if !*exhaustive && reference.Validate(seed) == nil {
					m.members(seed.(map[string]any), func() bool { return reference.Validate(seed) == nil })
				}
			}
			for _, seed := range seeds[kind] {
				m.mutate(seed)
			}
			t.Logf("%d verdicts compared", compared)
			if kind == KindAgent && mtls == 0 {
				t.Error("mtls was never tried")
			}
			if compared < 1000 {
				t.Errorf("only %d verdicts compared", compared)
			}
		})
	}
}

// wordsOf collects the enum words of a schema and some that are close to them.
func wordsOf(v any, words []any) []any {
	switch v := v.(type) {
	case map[string]any:
		if enum, ok := v["enum"].([]any); ok {
			words = append(words, enum...)
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			words = wordsOf(v[name], words)
		}
	case []any:
		for _, item := range v {
			words = wordsOf(item, words)
		}
	}
	return words
}

// A mutator makes every one-place variation of a document: each value replaced by many others, each member
// dropped, each object with a member more, each array with an item more or twice. Array items of the same
// place count as one place, and so do places of different documents, unless -exhaustive is given.
type mutator struct {
	words   []any
	seen    map[string]bool
	compare func(doc any, change string)
	root    any
}

func number(lit string) any { return stdjson.Number(lit) }

// scalars and composites are what every value is replaced by.
var scalars = []any{
	nil, true, false, "", "x", "1.0.0", "1.0", "01.2.3", "v1.2.3", "1.2.3\n", "SC-006", "SC-007", "a-b", "9a",
	"_" + strings.Repeat("a", 63), "_" + strings.Repeat("a", 64), "mtls",
	number("0"), number("-0"), number("1"), number("1.0"), number("-1"), number("0.5"), number("1.5"), number("2"), number("2.0000001"),
	number("-2"), number("-2.5"), number("1e300"), number("12345678901234567890"),
}

var composites = []any{
	[]any{}, []any{"a"}, []any{"a", "a"}, []any{"a", "b", "c", "d"}, []any{"a", "b", "c", "d", "e"}, []any{number("1"), number("1.0")}, []any{map[string]any{}}, []any{nil},
	map[string]any{}, map[string]any{"lang": "always"}, map[string]any{"lang": "cel"}, map[string]any{"lang": "cel", "expr": true}, map[string]any{"lang": "cel", "expr": number("1")},
	map[string]any{"expr": "x"}, map[string]any{"lang": "never", "expr": "x", "nl": "y"}, map[string]any{"lang": "jsonlogic", "expr": map[string]any{}, "zz": true},
	map[string]any{"provider": "custom"}, map[string]any{"provider_id": "x"}, map[string]any{"provider": "custom", "provider_id": ""}, map[string]any{"type": "mtls"},
}

var moreNames = []string{"zz", "x-zz", "X-zz", "x-", "_comment", "x_zz", "agent", "name", "type", "condition"}

// mutate compares the verdicts on every variation of a document, which is changed in place and put back.
func (m *mutator) mutate(root any) {
	m.root = root
	m.place(root, "", nil)
}

// members mutates the optional members of a document and of its agent, each without the others: most places are
// seen in documents of a tenth of the size then.
func (m *mutator) members(root map[string]any, valid func() bool) {
	type member struct {
		in    map[string]any
		name  string
		value any
	}
	var optional []member
	agent, _ := root["agent"].(map[string]any)
	for _, in := range []map[string]any{root, agent} {
		for _, name := range slices.Sorted(maps.Keys(in)) {
			value := in[name]
			if delete(in, name); valid() {
				optional = append(optional, member{in, name, value})
			} else {
				in[name] = value
			}
		}
	}
	for _, o := range optional {
		o.in[o.name] = o.value
		m.mutate(root)
		delete(o.in, o.name)
	}
	for _, o := range optional {
		o.in[o.name] = o.value
	}
}

var anyIndex = regexp.MustCompile(`/[0-9]+(/|$)`)

// anyItem is a pointer without the indexes of arrays.
func anyItem(pointer string) string {
	return anyIndex.ReplaceAllString(anyIndex.ReplaceAllString(pointer, "/*$1"), "/*$1")
}

// place varies the value at a pointer; put replaces it, and is nil for the root.
func (m *mutator) place(v any, pointer string, put func(any)) {
	pattern := anyItem(pointer) + " " + jsonType(v)
	fresh := !m.seen[pattern] || *exhaustive
	m.seen[pattern] = true
	if fresh && put != nil {
		for _, other := range m.others(v) {
			put(other)
			text, err := stdjson.Marshal(other)
			if err != nil {
				panic(err)
			}
			m.compare(m.root, pointer+" = "+string(text))
		}
		put(v)
	}
	switch v := v.(type) {
	case map[string]any:
		m.object(v, pointer, fresh)
	case []any:
		m.array(v, pointer, put, fresh)
	}
}

// others are the values to try instead of one: a text meets every word of the schema.
func (m *mutator) others(v any) []any {
	others := slices.Concat(scalars, composites)
	if _, ok := v.(string); !ok && !*exhaustive {
		return append(others, m.words[0], m.words[len(m.words)-1])
	}
	others = append(others, m.words...)
	if *exhaustive {
		for _, w := range m.words {
			if s, ok := w.(string); ok {
				others = append(others, s+"s", strings.ToUpper(s[:1])+s[1:])
			}
		}
	}
	return others
}

func (m *mutator) object(v map[string]any, pointer string, fresh bool) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		item, at := v[name], child(pointer, name)
		if drop := anyItem(at) + " dropped"; !m.seen[drop] || *exhaustive {
			m.seen[drop] = true
			delete(v, name)
			m.compare(m.root, at+" dropped")
			v[name] = item
		}
		m.place(item, at, func(other any) { v[name] = other })
	}
	if !fresh {
		return
	}
	for _, name := range moreNames {
		if _, ok := v[name]; ok {
			continue
		}
		for _, item := range []any{"zz", nil, number("1")} {
			v[name] = item
			m.compare(m.root, child(pointer, name)+" added")
		}
		delete(v, name)
	}
}

func (m *mutator) array(v []any, pointer string, put func(any), fresh bool) {
	for i, item := range v {
		m.place(item, child(pointer, i), func(other any) { v[i] = other })
	}
	if !fresh || put == nil {
		return
	}
	for _, more := range []any{nil, "zz", number("1"), map[string]any{}} {
		put(append(slices.Clone(v), more))
		m.compare(m.root, pointer+" with an item more")
	}
	if len(v) > 0 {
		put(append(slices.Clone(v), v[0]))
		m.compare(m.root, pointer+" with its first item twice")
		put(v[1:])
		m.compare(m.root, pointer+" without its first item")
	}
	put(v)
}

func TestEmbeddedSchemasAreCompiledWithinBounds(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"$ref": "file:///etc/hostname"}`:                          "refers to another document",
		`{"$ref": "http://127.0.0.1:1/schema.json"}`:                "refers to another document",
		`{"$ref": "other.json"}`:                                    "refers to another document",
		`{"$schema": "https://example.org/meta"}`:                   "no JSON Schema draft that is understood",
		`{"type": "objekt"}`:                                        "/type: must be one of null, boolean",
		`{"properties": {"a b": 1}}`:                                "/properties/a b: must be a schema",
		`{"pattern": "(?=x)"}`:                                      "RE2 syntax",
		`{"regexProperties": 1}`:                                    "not accepted",
		`{"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}`: "",
		`{"$schema": "http://json-schema.org/draft-07/schema#"}`:    "",
	} {
		d := mustParse(t, fmt.Appendf(nil, `{"sc_standard": "SC-006", "sc_version": "3.4.0", "agent_id": "6f1f4d0e-5b1c-4a53-9a39-3b8e3a4f8f10",
			"agent": {"name": "a", "goal": "g", "model": {"provider": "ollama", "preferred": "m"}, "io": {"input_schema": %s}}}`, schema), Options{})
		var said []string
		for _, p := range d.Lint() {
			if p.Rule == RuleSubschema && p.Pointer == "/agent/io/input_schema" {
				said = append(said, p.Message)
			}
		}
		if got := strings.Join(said, " "); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", schema, got, want)
		}
	}
}

func TestSchemaJSON(t *testing.T) {
	for _, k := range Kinds() {
		if _, err := jsonschema.CompileString("test:"+k.schemaFile(), string(SchemaJSON(k))); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
	if SchemaJSON("poem") != nil {
		t.Error("an unknown kind has a schema")
	}
}

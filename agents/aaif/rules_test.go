package aaif

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// ruleCase is a line of testdata/rules.
type ruleCase struct {
	kind    Kind
	line    int    // in its file
	changes string // to the full document
	verdict string // "ok", or places and rules
	data    []byte // the document
	tree    any
}

// ruleFiles are the files of testdata/rules, the kind each is about and the full document that it changes.
var ruleFiles = map[string]struct {
	kind Kind
	full string
}{
	"agent.txt":    {KindAgent, "agent.json"},
	"state.txt":    {KindState, "agent-state.json"},
	"manifest.txt": {KindManifest, "platform-manifest.json"},
	"report.txt":   {KindReport, "conformance-report.json"},
}

// ruleCases reads a file of testdata/rules.
func ruleCases(t testing.TB, file string) (cases []ruleCase) {
	t.Helper()
	about := ruleFiles[file]
	text, err := os.ReadFile(filepath.Join("testdata", "rules", file))
	if err != nil {
		t.Fatal(err)
	}
	full := fullDocuments(t)[about.full]
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		c := ruleCase{kind: about.kind, line: i}
		c.changes, c.verdict, _ = strings.Cut(line, " -> ")
		doc := tree(t, full)
		for change := range strings.SplitSeq(c.changes, " ; ") {
			if doc, err = changed(doc, change); err != nil {
				t.Fatalf("%s:%d: %s: %v", file, i+1, change, err)
			}
		}
		c.tree, c.data = doc, encoded(t, doc)
		cases = append(cases, c)
	}
	return cases
}

// changed applies one change to a tree.
func changed(doc any, change string) (any, error) {
	place, text, ok := strings.Cut(change, " = ")
	var value any
	if ok {
		d := stdjson.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
	} else if place, ok = strings.CutSuffix(change, " dropped"); !ok {
		return nil, errors.New("neither = nor dropped")
	} else if place == "(root)" {
		return nil, errors.New("the root stays")
	}
	if place == "(root)" {
		return value, nil
	}
	parts := strings.Split(strings.TrimPrefix(place, "/"), "/")
	at := doc
	for _, part := range parts[:len(parts)-1] {
		switch v := at.(type) {
		case map[string]any:
			at = v[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(v) {
				return nil, fmt.Errorf("no item %s", part)
			}
			at = v[i]
		}
	}
	last := parts[len(parts)-1]
	switch v := at.(type) {
	case map[string]any:
		if !strings.HasSuffix(change, " dropped") {
			v[last] = value
		} else if _, there := v[last]; there {
			delete(v, last)
		} else {
			return nil, errors.New("it is not there")
		}
	case []any:
		i, err := strconv.Atoi(last)
		if err != nil || i >= len(v) {
			return nil, fmt.Errorf("no item %s", last)
		}
		v[i] = value
	default:
		return nil, errors.New("there is no such place")
	}
	return doc, nil
}

// verdictOf is what Parse says of a document, as a rule has it.
func verdictOf(t testing.TB, data []byte, kind Kind) string {
	t.Helper()
	_, err := Parse(data, Options{Kind: kind})
	if err == nil {
		return "ok"
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("not an *Error: %v", err)
	}
	var said []string
	for _, p := range e.Problems {
		if p.Line == 0 {
			t.Errorf("%s %s: no line", p.Pointer, p.Rule)
		}
		pointer := p.Pointer
		if pointer == "" {
			pointer = "(root)"
		}
		said = append(said, pointer+" "+string(p.Rule))
	}
	return strings.Join(said, ", ")
}

// TestRulesHold holds what is read to the rules of testdata/rules. With -update it writes the verdicts.
func TestRulesHold(t *testing.T) {
	t.Parallel()
	for file := range ruleFiles {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join("testdata", "rules", file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(text), "\n")
			for _, c := range ruleCases(t, file) {
				got := verdictOf(t, c.data, c.kind)
				if lines[c.line] = c.changes + " -> " + got; got != c.verdict && !*update {
					t.Errorf("%s:%d: %s: got %s, want %s", path, c.line+1, c.changes, got, c.verdict)
				}
			}
			if *update {
				if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// schemaAt compiles a schema that a test has in hand.
func schemaAt(t testing.TB, text []byte) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	if err := c.AddResource("mem:///schema.json", strings.NewReader(string(text))); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:///schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asserting are the keywords that refuse values by themselves.
var asserting = []string{"type", "const", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "minItems", "maxItems", "uniqueItems", "required", "additionalProperties"}

// TestRulesCoverTheSchemas: each keyword of our schemas refuses something in
// the rules, each required field is missing in one of them, and each word of an
// enum is accepted by one. So a change of a schema always fails a test.
func TestRulesCoverTheSchemas(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it compiles each schema hundreds of times")
	}
	for file, about := range ruleFiles {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			var source map[string]any
			if err := stdjson.Unmarshal(SchemaJSON(about.kind), &source); err != nil {
				t.Fatal(err)
			}
			delete(source, "$id") // places are below the test's own
			cases := ruleCases(t, file)
			refusing := map[string]bool{}
			schema := schemaAt(t, encoded(t, source))
			for _, c := range cases {
				var bad *jsonschema.ValidationError
				if err := schema.Validate(c.tree); errors.As(err, &bad) {
					noteKeywords(bad, refusing)
				}
			}
			holes := 0
			hole := func(format string, args ...any) {
				t.Helper()
				holes++
				t.Errorf("no rule depends on "+format, args...)
			}
			// without reports whether a document has another verdict by a
			// schema with a change in it.
			without := func(word string, verdict bool) bool {
				changed := schemaAt(t, encoded(t, source))
				return slices.ContainsFunc(cases, func(c ruleCase) bool {
					return strings.Contains(c.changes, word) && (c.verdict == "ok") == verdict && (changed.Validate(c.tree) == nil) != verdict
				})
			}
			var visit func(node map[string]any, place string)
			visit = func(node map[string]any, place string) {
				for _, keyword := range asserting {
					value, ok := node[keyword]
					if !ok || keyword == "additionalProperties" && value != false || strings.Contains(place, "/if/") || strings.HasSuffix(place, "/if") {
						continue
					}
					if !refusing[place+"/"+keyword] {
						hole("%s/%s", place, keyword)
					}
					if keyword != "enum" && keyword != "required" {
						continue
					}
					words := value.([]any)
					for i, word := range words {
						node[keyword] = slices.Delete(slices.Clone(words), i, i+1)
						if len(words) == 1 {
							delete(node, keyword)
						}
						name := fmt.Sprint(word)
						if keyword == "enum" && !without(`"`+name+`"`, true) || keyword == "required" && !without(name+" dropped", false) && !without("{", false) {
							hole("%s/%s: %s", place, keyword, name)
						}
						node[keyword] = words
					}
				}
				for name, sub := range node {
					children, ok := sub.(map[string]any)
					switch {
					case !ok || name == "default":
					case name == "properties" || name == "patternProperties" || name == "$defs":
						for field, sub := range children {
							if sub, ok := sub.(map[string]any); ok {
								visit(sub, place+"/"+name+"/"+field)
							}
						}
					default:
						visit(children, place+"/"+name)
					}
				}
			}
			visit(source, "")
			if holes > 0 {
				t.Logf("add a line to testdata/rules/%s for each", file)
			}
		})
	}
}

// noteKeywords notes the places of the keywords that an error comes from.
func noteKeywords(e *jsonschema.ValidationError, into map[string]bool) {
	for _, cause := range e.Causes {
		noteKeywords(cause, into)
	}
	if len(e.Causes) == 0 {
		_, place, _ := strings.Cut(e.AbsoluteKeywordLocation, "#")
		into[place] = true
	}
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	text, err := stdjson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRulesAgreeWithThePublishedSchemas asks the published schemas for their verdicts, where they are.
func TestRulesAgreeWithThePublishedSchemas(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(corpus(t), "schema")
	for file, about := range ruleFiles {
		text, err := os.ReadFile(filepath.Join(dir, about.kind.schemaFile()))
		if err != nil {
			t.Fatal(err)
		}
		reference, err := jsonschema.CompileString("reference:"+about.kind.schemaFile(), string(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range ruleCases(t, file) {
			if strings.Contains(c.changes, `"mtls"`) {
				continue // which the draft's text has, and its schema has not
			}
			if err := reference.Validate(c.tree); (err == nil) != (c.verdict == "ok") {
				t.Errorf("%s:%d: %s -> %s: the published schema says %v", file, c.line+1, c.changes, c.verdict, err)
			}
		}
	}
}

// TestVocabularies pins the words that the draft lists beside its schemas. The published registries are asked, where
// they are, by TestRegistriesAreCurrent.
func TestVocabularies(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	list := func(name string, words []string) {
		slices.Sort(words)
		fmt.Fprintf(&b, "%s\n\t%s\n", name, strings.Join(words, "\n\t"))
	}
	list("providers", stringsOf(Providers()))
	list("capabilities", Capabilities())
	list("tool protocols", stringsOf(Protocols()))
	list("vault providers", stringsOf(VaultProviders()))
	list("condition languages", enumOf(t, "condition", "lang"))
	list("memory backends", enumOf(t, "memory", "backend"))
	path := filepath.Join("testdata", "vocabularies.golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || b.String() != string(want) {
		t.Errorf("%v; got:\n%s", err, &b)
	}
}

package intents_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/aeemesh/aeemesh/intents"
)

var update = flag.Bool("update", false, "write the verdicts of testdata/reserved.txt anew")

// A payloadCase is a line of testdata/reserved.txt.
type payloadCase struct {
	line             int
	intent           string
	variant          intents.Variant
	payload, verdict string
}

const payloadFile = "testdata/reserved.txt"

func payloadCases(t testing.TB) (lines []string, cases []payloadCase) {
	t.Helper()
	text, err := os.ReadFile(payloadFile)
	if err != nil {
		t.Fatal(err)
	}
	lines = strings.Split(string(text), "\n")
	for i, line := range lines {
		if line == "" || line[0] == '#' {
			continue
		}
		rest, verdict, _ := strings.Cut(line, " -> ")
		parts := strings.SplitN(rest, " ", 3)
		if len(parts) != 3 {
			t.Fatalf("%s:%d: %s", payloadFile, i+1, line)
		}
		cases = append(cases, payloadCase{i, parts[0], intents.Variant(parts[1]), parts[2], verdict})
	}
	return lines, cases
}

// evidenceSchema is the schema of decision evidence, without a level's requirements.
func evidenceSchema(t testing.TB) json.RawMessage {
	t.Helper()
	raw, err := os.ReadFile("decision-evidence.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// reservedRegistry returns a registry with the intents of payloadFile. It has a name of its own for
// decision evidence.
func reservedRegistry(t testing.TB) *intents.Registry {
	t.Helper()
	r := intents.NewRegistry()
	if err := r.Register(intents.Definition{Intent: "app.evidence", Result: evidenceSchema(t)}); err != nil {
		t.Fatal(err)
	}
	return r
}

// The fields of the reserved intents (AEE, "Reserved Namespace: aee.*"), one by one. This
// test needs no reference data (gap 19 of the traceability review).
func TestReservedPayloads(t *testing.T) {
	t.Parallel()
	r := reservedRegistry(t)
	lines, cases := payloadCases(t)
	for _, c := range cases {
		got := "ok"
		var bad *intents.ValidationError
		if err := r.Validate(c.intent, c.variant, json.RawMessage(c.payload)); errors.As(err, &bad) {
			var said []string
			for _, p := range bad.Problems {
				if p.Pointer == "" {
					p.Pointer = "(root)"
				}
				said = append(said, p.Pointer+" "+p.Keyword)
			}
			got = strings.Join(said, ", ")
		} else if err != nil {
			t.Fatalf("%s:%d: %v", payloadFile, c.line+1, err)
		}
		if got != c.verdict && !*update {
			t.Errorf("%s:%d: %s %s %s: got %s, want %s", payloadFile, c.line+1, c.intent, c.variant, c.payload, got, c.verdict)
		}
		lines[c.line] = fmt.Sprintf("%s %s %s -> %s", c.intent, c.variant, c.payload, got)
	}
	if *update {
		if err := os.WriteFile(payloadFile, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// In testdata/reserved.txt each keyword of the reserved schemas refuses something, each
// required member is missing once, and each property and each word of an enumeration is
// accepted once: so none of them can change unnoticed.
func TestReservedPayloadsCoverTheSchemas(t *testing.T) {
	t.Parallel()
	r := reservedRegistry(t)
	_, cases := payloadCases(t)
	of := map[string][]payloadCase{}
	for _, c := range cases {
		key := c.intent + " " + string(c.variant)
		of[key] = append(of[key], c)
	}
	for _, name := range r.List("") {
		if strings.HasPrefix(name, "aee.") && (len(of[name+" task"]) == 0 || len(of[name+" result"]) == 0 || len(of[name+" error"]) == 0) {
			t.Errorf("no payloads of %s", name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		intent, variant, _ := strings.Cut(key, " ")
		var schema map[string]any
		if err := json.Unmarshal(r.Schema(intent, intents.Variant(variant)).JSON(), &schema); err != nil {
			t.Fatal(err)
		}
		// differs reports whether the schema, as it is now, judges a payload that is
		// accepted (or refused) otherwise.
		differs := func(accepted bool) bool {
			text, err := json.Marshal(schema)
			if err != nil {
				t.Fatal(err)
			}
			s, err := jsonschema.CompileString("mem:///schema", string(text))
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(of[key], func(c payloadCase) bool {
				return (c.verdict == "ok") == accepted && (s.Validate(decode(t, c.payload)) == nil) != accepted
			})
		}
		var visit func(node map[string]any, place string)
		visit = func(node map[string]any, place string) {
			for _, keyword := range slices.Sorted(maps.Keys(node)) {
				value := node[keyword]
				without := func(what string, accepted bool) {
					if !differs(accepted) {
						t.Errorf("%s: no payload depends on %s/%s%s", key, place, keyword, what)
					}
					node[keyword] = value
				}
				switch keyword {
				case "type", "const", "minLength", "minimum", "maximum", "additionalProperties", "anyOf", "allOf":
					if _, both := node["enum"]; both && keyword == "type" {
						continue // the enumeration says it, too
					}
					if _, both := node["const"]; both && keyword == "type" {
						continue
					}
					delete(node, keyword)
					without("", false)
				case "required", "enum":
					words := value.([]any)
					for i, word := range words {
						node[keyword] = slices.Delete(slices.Clone(words), i, i+1)
						without(fmt.Sprint(": ", word), keyword == "enum")
					}
				}
				switch sub := value.(type) {
				case map[string]any:
					if keyword == "properties" {
						for name, property := range sub {
							if property, ok := property.(map[string]any); ok {
								visit(property, place+"/"+name)
							}
						}
					} else {
						visit(sub, place+"/"+keyword)
					}
				}
			}
		}
		visit(schema, "")
	}
}

// Our engine agrees with the library about payloads of the reserved schemas, and of two
// applications.
func TestOurSchemasAreReadAsTheLibraryReadsThem(t *testing.T) {
	t.Parallel()
	r := reservedRegistry(t)
	if _, err := r.LoadFS(os.DirFS(filepath.Join("testdata", "app"))); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range r.List("") {
		for _, v := range []intents.Variant{intents.Task, intents.Result, intents.Error} {
			schema := r.Schema(name, v)
			if schema == nil {
				continue
			}
			n++
			raw := schema.JSON()
			t.Run(fmt.Sprintf("%s.%s", name, v), func(t *testing.T) {
				t.Parallel()
				agree(t, raw, func(doc json.RawMessage) error { return r.Validate(name, v, doc) })
			})
		}
	}
	if n < 40 {
		t.Errorf("only %d schemas", n)
	}
}

// testdata/reserved.txt agrees with the reference schemas, where they are available.
func TestReservedPayloadsAgreeWithTheReference(t *testing.T) {
	t.Parallel()
	dir := reference(t)
	schemas := map[string]*jsonschema.Schema{}
	_, cases := payloadCases(t)
	asked := 0
	for _, c := range cases {
		file := filepath.Join(dir, "intents", c.intent+"."+string(c.variant)+".schema.json")
		if c.intent == "app.evidence" {
			file = filepath.Join(dir, "decision-evidence.schema.json")
		}
		s := schemas[file]
		if s == nil {
			raw, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) {
				continue // the reference has none of our intents, and no error schemas
			} else if err != nil {
				t.Fatal(err)
			}
			if s, err = jsonschema.CompileString("reference:///"+filepath.Base(file), string(raw)); err != nil {
				t.Fatal(err)
			}
			schemas[file] = s
		}
		asked++
		if err := s.Validate(decode(t, c.payload)); (err == nil) != (c.verdict == "ok") {
			t.Errorf("%s:%d: %s -> %s: the reference says %v", payloadFile, c.line+1, c.payload, c.verdict, err)
		}
	}
	if len(schemas) != 15 || asked < 100 {
		t.Errorf("%d schemas were asked about %d payloads", len(schemas), asked)
	}
}

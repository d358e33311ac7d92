package intents_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/schema"
	"github.com/santhosh-tekuri/jsonschema/v5"
	"pgregory.net/rapid"
)

// reference returns the folder of the AEE reference data, which is beside the repository
// and not in it.
func reference(t testing.TB) string {
	dir, err := os.Getwd()
	for err == nil {
		if _, statErr := os.Stat(filepath.Join(dir, "go.mod")); statErr == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Skip("no go.mod above the test: cannot tell where the reference data would be")
		}
		dir = parent
	}
	folder := filepath.Join(dir, "..", "shared", "conformance", "aee")
	if _, err := os.Stat(folder); err != nil {
		t.Skip("the AEE reference data is not here; the differential tests need it")
	}
	return folder
}

// anything draws values of all kinds.
var anything = rapid.SampledFrom([]string{
	`""`, `"x"`, `"task"`, `"healthy"`, "true", "false", "null", "0", "1", "-1", "0.5", "1.0", "1e2", "65535", "65536", "9007199254740993",
	"[]", "{}", `["x"]`, `["x",1]`, `[["x"]]`, `{"x":1}`, `[{"node":"n","reason":"r"}]`, `[{"ref":"n","excerpt":1}]`,
})

// payload draws a value from a schema: mostly a valid one, sometimes with members left
// out, unknown members added, or values of the wrong kind.
func payload(t *rapid.T, schema map[string]any) string {
	if rapid.IntRange(0, 9).Draw(t, "stray") == 0 {
		return anything.Draw(t, "anything")
	}
	if allowed, ok := schema["enum"].([]any); ok {
		text, _ := json.Marshal(rapid.SampledFrom(allowed).Draw(t, "enum"))
		return string(text)
	}
	switch schema["type"] {
	case "string":
		long, _ := schema["minLength"].(json.Number)
		n, _ := long.Int64()
		return rapid.SampledFrom([]string{`""`, `"x"`, `"é\u00e9\n"`, `"` + strings.Repeat("é", int(n)) + `"`}).Draw(t, "string")
	case "boolean":
		return rapid.SampledFrom([]string{"true", "true", "false"}).Draw(t, "boolean")
	case "number", "integer":
		return rapid.SampledFrom([]string{"0", "1", "1.0", "0.5", "1.01", "-1", "65535", "65536", "1e0"}).Draw(t, "number")
	case "array":
		items, _ := schema["items"].(map[string]any)
		var all []string
		for range rapid.IntRange(0, 2).Draw(t, "items") {
			all = append(all, payload(t, items))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	var members []string
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if rapid.IntRange(0, 5).Draw(t, "left out") > 0 {
			sub, _ := properties[name].(map[string]any)
			members = append(members, fmt.Sprintf("%q:%s", name, payload(t, sub)))
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "stranger") == 0 {
		members = append(members, fmt.Sprintf("%q:%s", rapid.SampledFrom([]string{"other", "ID", "Pong", ""}).Draw(t, "name"), anything.Draw(t, "value")))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func decode(t interface{ Fatalf(string, ...any) }, doc string) any {
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return v
}

// agree compares two verdicts on many payloads: the library's with the reference schema,
// and ours with our schema.
func agree(t *testing.T, raw []byte, ours func(json.RawMessage) error) {
	theirs, err := jsonschema.CompileString("reference:///schema", string(raw))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[bool]int{}
	check := func(t interface{ Fatalf(string, ...any) }, doc string) {
		want := theirs.Validate(decode(t, doc)) == nil
		seen[want]++
		if err := ours(json.RawMessage(doc)); (err == nil) != want {
			t.Fatalf("payload %s\nthe reference says valid: %v\nours: %v", doc, want, err)
		}
	}
	check(t, "{}")
	schema, _ := decode(t, string(raw)).(map[string]any)
	rapid.Check(t, func(rt *rapid.T) {
		for range 20 {
			check(rt, payload(rt, schema))
		}
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("valid %d, invalid %d: the generator has gone blind", seen[true], seen[false])
	}
}

func TestReservedSchemasAgreeWithTheReference(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reference(t), "intents")
	r := intents.NewRegistry()
	files, err := filepath.Glob(filepath.Join(dir, "aee.*.schema.json"))
	if err != nil || len(files) != 14 {
		t.Fatalf("%d reference schemas, want 14 (%v)", len(files), err)
	}
	for _, file := range files {
		base := strings.TrimSuffix(filepath.Base(file), ".schema.json")
		intent, variant := strings.TrimSuffix(base, filepath.Ext(base)), intents.Variant(filepath.Ext(base)[1:])
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			if r.Schema(intent, variant) == nil {
				t.Fatal("we have no such schema")
			}
			agree(t, raw, func(doc json.RawMessage) error { return r.Validate(intent, variant, doc) })
		})
	}
}

func TestSampleApplicationSchemasLoadAndAgree(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reference(t), "intents")
	application := only{os.DirFS(dir), func(name string) bool { return !strings.HasPrefix(name, "aee.") }}
	r := intents.NewRegistry()
	names, err := r.LoadFS(application)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, v := range []intents.Variant{intents.Task, intents.Result, intents.Error} {
			raw, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%s.%s.schema.json", name, v)))
			if err != nil {
				t.Fatal(err)
			}
			t.Run(fmt.Sprintf("%s.%s", name, v), func(t *testing.T) {
				t.Parallel()
				agree(t, raw, func(doc json.RawMessage) error { return r.Validate(name, v, doc) })
			})
		}
	}
}

func TestEvidenceSchemaAgreesWithTheReference(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(reference(t), "decision-evidence.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.Compile(evidenceSchema(t))
	if err != nil {
		t.Fatal(err)
	}
	agree(t, raw, s.Validate)
}

// only is a file system that shows only the files of a folder that the filter accepts.
type only struct {
	fs.FS
	pass func(name string) bool
}

func (o only) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(o.FS, name)
	var some []fs.DirEntry
	for _, e := range all {
		if o.pass(e.Name()) {
			some = append(some, e)
		}
	}
	return some, err
}

package envelope_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v5"
)

// compileSchema compiles a schema that has no references to others.
func compileSchema(tb testing.TB, text []byte) *jsonschema.Schema {
	tb.Helper()
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	if err := c.AddResource("mem:///schema.json", bytes.NewReader(text)); err != nil {
		tb.Fatal(err)
	}
	schema, err := c.Compile("mem:///schema.json")
	if err != nil {
		tb.Fatal(err)
	}
	return schema
}

// conformanceFile reads a file of the conformance corpus, which is beside the module on
// some machines, and skips the test on the others.
func conformanceFile(tb testing.TB, name string) []byte {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			tb.Fatal("no go.mod above the test")
		}
		dir = parent
	}
	data, err := os.ReadFile(filepath.Join(dir, "..", "shared", "conformance", name))
	if errors.Is(err, os.ErrNotExist) {
		tb.Skip("the conformance corpus is not beside this checkout")
	}
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// fieldValues are the texts that each field is tried with.
var fieldValues = []string{
	`null`, `true`, `false`, `0`, `1`, `-1.5e3`, `""`, `"1"`, `"2"`, `"x"`, `"ab"`, `"abc"`, `"1234567"`, `"12345678"`, `"123456789"`, `"1234567890"`,
	`"日本語日本語日"`, `"日本語日本語日本"`, `"😀😀😀😀😀😀😀"`, `"😀😀😀😀😀😀😀😀"`, `"\u0031"`, `"\ud83d\ude00234567"`,
	`"task"`, `"result"`, `"event"`, `"error"`, `"stream"`, `"Task"`, `"t\u0061sk"`, `"low"`, `"normal"`, `"high"`, `"urgent"`, `"HIGH"`, `"low "`,
	`[]`, `["x"]`, `{}`, `{"a":1}`, ` {"trace_id":"t"} `, `{"trace_id":"t","span_id":"s"}`, `{"trace_id":1}`, `{"span_id":null}`, `{"trace\u005fid":[]}`,
	`{"alg":"ed25519","kid":"k","value":"AA=="}`, `{"deep":[[[{"x":[]}]]]}`, `"agent.a"`, `"2025-12-14T03:45:12Z"`, `"2025-12-14"`, `"20251214"`,
}

var fieldNames = []string{"v", "id", "ts", "type", "from", "to", "intent", "corr", "reply_to", "trace", "priority", "requires", "payload", "sig"}

// mutation changes a few fields of the sample task: it sets one to a value of the list,
// removes one, or adds one.
func mutation(random *rand.Rand) string {
	var base map[string]json.RawMessage
	if err := json.Unmarshal([]byte(draftTask), &base); err != nil {
		panic(err)
	}
	if random.IntN(3) == 0 {
		base["type"], base["reply_to"] = json.RawMessage(`"result"`), json.RawMessage(`"12345678"`)
	}
	for range 1 + random.IntN(3) {
		name := fieldNames[random.IntN(len(fieldNames))]
		switch random.IntN(5) {
		case 0:
			delete(base, name)
		case 1:
			base["x_"+name] = json.RawMessage(fieldValues[random.IntN(len(fieldValues))])
		default:
			base[name] = json.RawMessage(fieldValues[random.IntN(len(fieldValues))])
		}
	}
	var b strings.Builder
	for name, value := range base { // in random order
		fmt.Fprintf(&b, ",%q:%s", name, value)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// differential compares the verdict of Parse with that of a schema, for every value in
// every field and for thousands of combinations.
func differential(t *testing.T, schema *jsonschema.Schema) {
	accepted, refused := 0, 0
	compare := func(text string) {
		var doc any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&doc); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		bySchema := schema.Validate(doc)
		_, byUs := envelope.Parse([]byte(text))
		if (bySchema == nil) != (byUs == nil) {
			t.Errorf("verdicts differ for %s\nschema: %v\nParse: %v", text, bySchema, byUs)
		}
		if byUs == nil {
			accepted++
		} else {
			refused++
		}
	}
	for _, kind := range []string{"task", "result", "error", "event", "stream"} {
		for _, name := range fieldNames {
			var base map[string]json.RawMessage
			if err := json.Unmarshal([]byte(draftTask), &base); err != nil {
				t.Fatal(err)
			}
			base["type"] = json.RawMessage(`"` + kind + `"`)
			if kind == "result" || kind == "error" {
				base["reply_to"] = json.RawMessage(`"12345678"`)
			}
			for _, value := range append([]string{""}, fieldValues...) {
				if base[name] = json.RawMessage(value); value == "" {
					delete(base, name)
				}
				text, err := json.Marshal(base)
				if err != nil {
					t.Fatal(err)
				}
				compare(string(text))
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		compare(mutation(random))
	}
	for _, text := range []string{`{}`, `[]`, `null`, `"x"`, `1`, `{"v":"1"}`} {
		compare(text)
	}
	if accepted < 1000 || refused < 1000 {
		t.Errorf("%d accepted and %d refused: the test does not look at both sides", accepted, refused)
	}
}

func TestParseAgreesWithOurSchema(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	differential(t, compileSchema(t, envelope.Schema()))
}

func TestParseAgreesWithTheDraftsSchema(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	differential(t, compileSchema(t, conformanceFile(t, "aee/aee-v1.schema.json")))
}

// vectorDocs returns the inputs of accept.txtar and reject.txtar that are JSON.
func vectorDocs(t *testing.T) map[string]any {
	t.Helper()
	docs := map[string]any{}
	for _, name := range []string{"accept", "reject"} {
		archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range archive.Files {
			d := json.NewDecoder(bytes.NewReader(file.Data))
			d.UseNumber()
			var doc any
			if filepath.Ext(file.Name) == ".json" && d.Decode(&doc) == nil {
				docs[name+" "+file.Name] = doc
			}
		}
	}
	return docs
}

// Each keyword and each word of an enumeration of the schema decides about one of the
// vectors, so that it cannot change unnoticed where the draft's own schema is missing.
func TestVectorsCoverTheSchema(t *testing.T) {
	t.Parallel()
	docs := vectorDocs(t)
	as := func(schema map[string]any) map[string]bool {
		text, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		compiled := compileSchema(t, text)
		fits := map[string]bool{}
		for name, doc := range docs {
			fits[name] = compiled.Validate(doc) == nil
		}
		return fits
	}
	var schema map[string]any
	if err := json.Unmarshal(envelope.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	usual := as(schema)
	var visit func(node map[string]any, place string)
	visit = func(node map[string]any, place string) {
		for keyword, value := range node {
			decides := func(what string) {
				if maps.Equal(as(schema), usual) {
					t.Errorf("no vector depends on %s/%s%s", place, keyword, what)
				}
				node[keyword] = value
			}
			switch keyword {
			case "type", "const", "minLength", "if", "then":
				if _, words := node["enum"]; words && keyword == "type" || node["const"] != nil && keyword == "type" {
					break // the enumeration says it, too
				}
				delete(node, keyword)
				decides("")
			case "required", "enum":
				words := value.([]any)
				for i, word := range words {
					node[keyword] = slices.Delete(slices.Clone(words), i, i+1)
					decides(fmt.Sprint(": ", word))
				}
			}
			switch sub := value.(type) {
			case map[string]any:
				if keyword == "if" {
					break // a result or an error has a type
				}
				if keyword != "properties" {
					visit(sub, place+"/"+keyword)
					break
				}
				for name, property := range sub {
					if property, ok := property.(map[string]any); ok {
						visit(property, place+"/"+name)
					}
				}
			case []any:
				for i, item := range sub {
					if item, ok := item.(map[string]any); ok {
						visit(item, fmt.Sprintf("%s/%s/%d", place, keyword, i))
					}
				}
			}
		}
	}
	visit(schema, "")
}

// The draft's schema, where it is available, judges the vectors as ours does.
func TestVectorsAgreeWithTheDraftsSchema(t *testing.T) {
	t.Parallel()
	ours, drafts := compileSchema(t, envelope.Schema()), compileSchema(t, conformanceFile(t, "aee/aee-v1.schema.json"))
	for name, doc := range vectorDocs(t) {
		if got, want := ours.Validate(doc), drafts.Validate(doc); (got == nil) != (want == nil) {
			t.Errorf("%s: ours says %v, the draft's %v", name, got, want)
		}
	}
}

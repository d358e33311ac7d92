package aaif

import (
	"bytes"
	"encoding/hex"
	stdjson "encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/tools/txtar"
)

// seeds gives a fuzzer our own documents, whole and broken, in one encoding.
func seeds(f *testing.F, format Format) {
	f.Helper()
	for _, data := range fullDocuments(f) {
		doc := mustParse(f, data, Options{})
		text, err := doc.Encode(format)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	paths, err := filepath.Glob(filepath.Join("testdata", "check", "*.txtar"))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			switch ext := filepath.Ext(file.Name); {
			case ext == "."+string(format):
				f.Add(file.Data)
			case ext == ".hex" && format == CBOR:
				data, err := hex.DecodeString(hexComment.ReplaceAllString(string(file.Data), ""))
				if err != nil {
					f.Fatal(err)
				}
				f.Add(data)
			}
		}
	}
}

// survives checks the package's promises for a parsed document.
func survives(t *testing.T, data []byte, format Format) {
	problems := check(data, Options{Format: format})
	doc, err := Parse(data, Options{Format: format})
	if err != nil {
		if len(problems) == 0 {
			t.Fatalf("Parse refuses what Check passes: %v", err)
		}
		return
	}
	for _, p := range problems {
		if p.Severity != SeverityWarning || p.Line == 0 && format != CBOR {
			t.Fatalf("of a document that is read: %+v", p)
		}
	}
	same, err := doc.Encode(format)
	if err != nil {
		t.Fatal(err)
	}
	if format != CBOR && !bytes.Equal(same, data) {
		t.Fatalf("%s comes back as\n%s", data, same)
	}
	text, err := doc.Encode(JSON)
	if err != nil {
		t.Fatal(err)
	}
	yaml, err := doc.Encode(YAML)
	if err != nil {
		t.Fatal(err)
	}
	limits := Options{MaxBytes: 64 * DefaultMaxBytes, MaxDepth: maxMaxDepth, Kind: doc.Kind()}
	for other, encoded := range map[Format][]byte{JSON: text, YAML: yaml} {
		limits.Format = other
		again, err := Parse(encoded, limits)
		if err != nil {
			t.Fatalf("as %s it is refused: %v\n%s", other, err, encoded)
		}
		if !reflect.DeepEqual(again.tree, doc.tree) {
			t.Fatalf("as %s it says something else:\n%s\n%v\n%v", other, encoded, again.tree, doc.tree)
		}
	}
	packed, err := doc.Encode(CBOR)
	if err == nil { // a number may have too many digits
		limits.Format = CBOR
		again, err := Parse(packed, limits)
		if err != nil || !reflect.DeepEqual(values(again.tree), values(doc.tree)) {
			t.Fatalf("as CBOR it says something else (%v)\n%x", err, packed)
		}
	}
	if d := doc.Definition(); d != nil {
		d.WithDefaults()
		d.Levels()
		d.Negotiate(Offer{})
		NotHonoured(doc, WorkerSupports())
	}
}

func FuzzJSON(f *testing.F) {
	seeds(f, JSON)
	f.Fuzz(func(t *testing.T, data []byte) { survives(t, data, JSON) })
}

func FuzzYAML(f *testing.F) {
	seeds(f, YAML)
	f.Fuzz(func(t *testing.T, data []byte) { survives(t, data, YAML) })
}

func FuzzCBOR(f *testing.F) {
	seeds(f, CBOR)
	f.Fuzz(func(t *testing.T, data []byte) { survives(t, data, CBOR) })
}

// FuzzYAMLText writes any text, as a value and as a name, and reads it back.
func FuzzYAMLText(f *testing.F) {
	for _, s := range []string{"", "a", "a: b", "- a", "|", "a\nb\n", " a\n b", "a \n", "\t", "null", "1e3", "2026-11-20", "a\u2028b", "\U0001F680", "'\"\\", "#a", "a #b", "---", "...\na", "a\n---\nb", "a\n\n\n", "\u0085", "%a\nb", "?\n:", "x\n#y\n", "a\r\nb", "a\nb\u00a0"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		name, value = strings.ToValidUTF8(name, "?"), strings.ToValidUTF8(value, "?")
		text, err := json.Marshal(map[string]any{name: map[string]any{name: []string{value, value}}})
		if err != nil {
			t.Fatal(err)
		}
		yaml, err := encodeYAML(text)
		if err != nil {
			t.Fatal(err)
		}
		back, problem := decodeYAML(yaml, 8, nil)
		if problem != nil {
			t.Fatalf("%v\n%s\n%q", problem, yaml, yaml)
		}
		if !reflect.DeepEqual(tree(t, back), tree(t, text)) {
			t.Fatalf("%s comes back as %s by way of\n%s", text, back, yaml)
		}
	})
}

func FuzzSecret(f *testing.F) {
	for _, s := range madeUp {
		f.Add("api_key", s)
	}
	f.Add("env_var", "A")
	f.Add("description", "prose")
	f.Fuzz(func(t *testing.T, name, text string) {
		doc := map[string]any{"agent": map[string]any{"tools": []any{map[string]any{"auth": map[string]any{name: text}, name: text}}}}
		for _, p := range scanSecrets(KindAgent, doc) {
			if len(text) >= 16 && !strings.Contains(name, text) && strings.Contains(p.String(), text) {
				t.Fatalf("the message quotes the text: %v", p)
			}
		}
	})
}

func FuzzCondition(f *testing.F) {
	for _, s := range []string{`"a"`, `{"lang":"cel","expr":"x"}`, `{"lang":"jsonlogic","expr":{"a":[1.0]}}`, `null`, `{"lang":""}`, `{"lang":"cel","expr":null}`,
		"{\"lang\":\"jsonlogic\",\"expr\":{\"a\":\t[1,2]}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Condition
		if json.Unmarshal(data, &c) != nil {
			return
		}
		c.Text()
		out, err := json.Marshal(&c)
		if err != nil {
			t.Fatal(err)
		}
		var again Condition
		if err := json.Unmarshal(out, &again); err != nil {
			t.Fatalf("%s comes back as %s: %v", data, out, err)
		}
		if expr := jsontext.Value(c.Expr); len(expr) > 0 { // white space does not matter
			if err := expr.Compact(); err != nil {
				t.Fatal(err)
			}
			c.Expr = stdjson.RawMessage(expr)
		}
		diff(t, "condition", again, c)
	})
}

func FuzzEntityName(f *testing.F) {
	for _, s := range []string{"Invoice Chaser", "HTTPServer", "Ünïcödé", "请款", "a.b > *", "", "Bob's"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		id, err := EntityName(name)
		if err != nil {
			return
		}
		rest, ok := strings.CutPrefix(id, "agent.")
		if !ok || rest == "" || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" ||
			strings.Contains(rest, "__") || strings.HasPrefix(rest, "_") || strings.HasSuffix(rest, "_") {
			t.Fatalf("%q: %q", name, id)
		}
		if again, err := EntityName(rest); err != nil || again != id {
			t.Fatalf("%q: %q, and then %q, %v", name, id, again, err)
		}
	})
}

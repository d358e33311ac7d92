package aaif

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// TestFullDocumentsAreFull checks that the seeds of the other tests are
// complete: a field that the schemas have and the documents lack would not be
// tested.
func TestFullDocumentsAreFull(t *testing.T) {
	for name, data := range fullDocuments(t) {
		doc := mustParse(t, data, Options{Name: name})
		used := make(map[string]bool)
		var walk func(v any, pattern string)
		walk = func(v any, pattern string) {
			used[pattern] = true
			switch v := v.(type) {
			case map[string]any:
				for name, item := range v {
					walk(item, child(pattern, name))
				}
			case []any:
				for _, item := range v {
					walk(item, pattern+"/*")
				}
			}
		}
		walk(doc.tree, "")
		for field, homes := range schemas[doc.Kind()]().homes {
			for _, home := range homes {
				pattern := home + "/" + field
				if !used[pattern] && pattern != "/agent/orchestration/consensus/min_votes" {
					t.Errorf("%s has no %s", name, pattern)
				}
			}
		}
		for _, p := range doc.Lint() {
			if p.Pointer != "/error/stack_trace" && p.Rule != RuleStringCondition {
				t.Errorf("%s: %v", name, p)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	files := fullDocuments(t)
	for name, data := range files {
		t.Run(name, func(t *testing.T) {
			doc := mustParse(t, data, Options{Name: name})
			want := tree(t, data)

			text, err := doc.Encode(JSON)
			if err != nil || !bytes.Equal(text, data) {
				t.Errorf("JSON to JSON is not the same text (%v)", err)
			}

			text, err = doc.Encode(YAML)
			if err != nil {
				t.Fatal(err)
			}
			fromYAML := mustParse(t, text, Options{Format: YAML})
			diff(t, "JSON to YAML, digits included", fromYAML.tree, want)
			again, err := fromYAML.Encode(YAML)
			if err != nil || !bytes.Equal(again, text) {
				t.Errorf("YAML to YAML is not the same text (%v)", err)
			}
			text, err = fromYAML.Encode(JSON)
			if err != nil {
				t.Fatal(err)
			}
			diff(t, "YAML to JSON, digits included", tree(t, text), want)
			if got, want := memberOrder(t, text), memberOrder(t, data); got != want {
				t.Errorf("members changed places:\n got %s\nwant %s", got, want)
			}

			packed, err := doc.Encode(CBOR)
			if err != nil {
				t.Fatal(err)
			}
			fromCBOR := mustParse(t, packed, Options{})
			if fromCBOR.Format() != CBOR || fromCBOR.Kind() != doc.Kind() {
				t.Errorf("read as %s, %s", fromCBOR.Format(), fromCBOR.Kind())
			}
			diff(t, "JSON to CBOR", values(fromCBOR.tree), values(want))
			for _, d := range []*Document{fromYAML, fromCBOR} {
				repacked, err := d.Encode(CBOR)
				if err != nil || !bytes.Equal(repacked, packed) {
					t.Errorf("%s to CBOR is not the same bytes (%v)", d.Format(), err)
				}
			}
			text, err = fromCBOR.Encode(YAML)
			if err != nil {
				t.Fatal(err)
			}
			diff(t, "CBOR to YAML", values(mustParse(t, text, Options{Format: YAML}).tree), values(want))
		})
	}
}

// memberOrder lists the member names of a JSON text in order.
func memberOrder(t *testing.T, text []byte) string {
	t.Helper()
	var b strings.Builder
	dec := jsontext.NewDecoder(bytes.NewBuffer(text))
	for {
		tok, err := dec.ReadToken()
		if err == io.EOF {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if k, n := dec.StackIndex(dec.StackDepth()); k == '{' && n%2 == 1 && tok.Kind() == '"' {
			b.WriteString(tok.String() + " ")
		}
	}
}

// TestTypesHoldEverything: the types read back what they write, including
// extensions and digits.
func TestTypesHoldEverything(t *testing.T) {
	for name, data := range fullDocuments(t) {
		doc := mustParse(t, data, Options{Name: name})
		var typed any
		switch doc.Kind() {
		case KindAgent:
			typed = doc.Definition()
		case KindState:
			typed = doc.State()
		case KindManifest:
			typed = doc.Manifest()
		case KindReport:
			typed = doc.Report()
		}
		text, err := json.Marshal(typed)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		diff(t, name, tree(t, text), tree(t, data))
	}
}

// TestExtensionsAreEmbedded pins the tag of the catch-all field: other spellings of it are silently ignored by
// the codec, which then loses unknown members and writes the field under its own name.
func TestExtensionsAreEmbedded(t *testing.T) {
	const text = `{"sc_standard":"SC-006","agent":{"name":"A","goal":"G"},"x-b":{"n":1.50,"z":null},"x-a":[1e2]}`
	var d Definition
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if got, want := string(d.Extensions), `{"x-b":{"n":1.50,"z":null},"x-a":[1e2]}`; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	out, err := json.Marshal(&d)
	if err != nil || string(out) != text {
		t.Errorf("wrote %s, %v; want %s", out, err, text)
	}
}

// TestEncodingsBehaveAlike: a document has the same content and the same
// problems in JSON, YAML and CBOR.
func TestEncodingsBehaveAlike(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	files := fullDocuments(t)
	for file := range ruleFiles {
		alike := map[string]int{} // a few of each rule do
		for _, c := range ruleCases(t, file) {
			_, rule, _ := strings.Cut(c.verdict, " ")
			if alike[rule]++; alike[rule] <= 4 {
				files[fmt.Sprintf("%s:%d", file, c.line+1)] = c.data
			}
		}
	}
	if published(t) != "" {
		for _, verdict := range []string{"valid", "invalid"} {
			for name, data := range corpusFiles(t, verdict) {
				files[name] = data
			}
		}
	}
	files["secret"] = []byte(`{"sc_standard": "SC-006", "agent": {"name": "A", "goal": "` + madeUp["Slack"] + `"}}`)
	for name, data := range files {
		v := tree(t, data)
		packed, err := encodeCBOR(v)
		if err != nil {
			t.Fatal(err)
		}
		yaml, err := encodeYAML(data)
		if err != nil {
			t.Fatal(err)
		}
		want := withoutPlaces(check(data, Options{Format: JSON}))
		diff(t, name+" as YAML", withoutPlaces(check(yaml, Options{Format: YAML})), want)
		diff(t, name+" as CBOR", withoutPlaces(check(packed, Options{Format: CBOR})), want)
		if doc, err := Parse(data, Options{}); err == nil {
			want := withoutPlaces(NotHonoured(doc, WorkerSupports()))
			got := withoutPlaces(NotHonoured(mustParse(t, packed, Options{}), WorkerSupports()))
			diff(t, name+" as CBOR, not honoured", got, want)
		}
	}
}

func TestYAMLThatIsReadStaysAsItIs(t *testing.T) {
	const text = "# who\nsc_standard: SC-006\nagent: {name: A, goal: 'G'} # why\n"
	doc := mustParse(t, []byte(text), Options{})
	if doc.Format() != YAML {
		t.Fatalf("read as %s", doc.Format())
	}
	out, err := doc.Encode(YAML)
	if err != nil || string(out) != text {
		t.Errorf("%q, %v", out, err)
	}
	out, err = doc.Encode(JSON)
	want := "{\n  \"sc_standard\": \"SC-006\",\n  \"agent\": {\n    \"name\": \"A\",\n    \"goal\": \"G\"\n  }\n}\n"
	if err != nil || string(out) != want {
		t.Errorf("%s, %v", out, err)
	}
}

func TestYAMLIsReadable(t *testing.T) {
	const text = `{"sc_standard":"SC-006","agent":{"name":"A","goal":"It's done: all of it","instructions":"One.\n\n  Two, three.\n",
		"constraints":["no","- dash","say \"no\"","a\u0007b","null",""," lead","é 漢字 😀"],"tools":[],"io":{},
		"context":[{"type":"text","value":"trailing \nspace"},{"type":"text","value":"\tx\ny"},{"type":"text","value":"a\nb\n\n"}],
		"evaluation":{"test_cases":[{"id":"1","input":[[1,[2]],{"a":[]}]}]}}}`
	want := `sc_standard: SC-006
agent:
  name: A
  goal: "It's done: all of it"
  instructions: |
    One.

      Two, three.
  constraints:
    - "no"
    - "- dash"
    - "say \"no\""
    - "a\u0007b"
    - "null"
    - ""
    - " lead"
    - "é 漢字 😀"
  tools: []
  io: {}
  context:
    - type: text
      value: "trailing \nspace"
    - type: text
      value: "\tx\ny"
    - type: text
      value: "a\nb\n\n"
  evaluation:
    test_cases:
      - id: "1"
        input:
          -
            - 1
            -
              - 2
          - a: []
`
	out, err := mustParse(t, []byte(text), Options{}).Encode(YAML)
	if err != nil || string(out) != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, out, want)
	}
}

func TestCBORIsDeterministic(t *testing.T) {
	a := mustParse(t, []byte(`{"sc_standard": "SC-006", "agent": {"name": "A", "goal": "G"}}`), Options{})
	b := mustParse(t, []byte(`{"agent": {"goal": "G", "name": "A"}, "sc_standard": "SC-006"}`), Options{})
	want := "\xa2\x65agent\xa2\x64goal\x61G\x64name\x61A\x6bsc_standard\x66SC-006"
	for _, doc := range []*Document{a, b} {
		packed, err := doc.Encode(CBOR)
		if err != nil || string(packed) != want {
			t.Errorf("%x, %v", packed, err)
		}
	}
	if CBOR.MediaType() != `application/cbor; profile="https://schemacommons.org/SC-006/cbor"` {
		t.Error(CBOR.MediaType())
	}
}

func TestNumbersInCBOR(t *testing.T) {
	for lit, want := range map[string]string{
		"0": "0", "-0": "-0.0", "1": "1", "1.0": "1.0", "1.50": "1.5", "1e2": "100.0", "-7": "-7", "0.1": "0.1",
		"9007199254740993": "9007199254740993", "18446744073709551615": "18446744073709551615",
		"-9223372036854775808": "-9223372036854775808", "-18446744073709551616": "-18446744073709551616",
		"1e22": "1e+22", "5e-324": "5e-324", "1.7976931348623157e308": "1.7976931348623157e+308", "0.000": "0.0",
		"100000000000000000000": "100000000000000000000.0",
	} {
		packed, err := encodeCBOR(map[string]any{"n": stdjson.Number(lit)})
		if err != nil {
			t.Errorf("%s: %v", lit, err)
			continue
		}
		text, problem := decodeCBOR(packed, 8)
		if problem != nil || string(text) != `{"n":`+want+`}` {
			t.Errorf("%s comes back as %s (%v)", lit, text, problem)
		}
	}
	for _, lit := range []string{"0.1000000000000000055", "123456789012345678901", "18446744073709551616", "-18446744073709551617", "1.00000000000000000001"} {
		if _, err := encodeCBOR(map[string]any{"n": stdjson.Number(lit)}); err == nil || !strings.Contains(err.Error(), "/n") {
			t.Errorf("%s is encoded, or the error does not say where: %v", lit, err)
		}
	}
}

// What is accepted in JSON is accepted in CBOR, also if it is longer than the
// library's default permits. The bound is that of the document's bytes.
func TestLongArraysAndMapsInCBOR(t *testing.T) {
	t.Parallel()
	const n = 1<<17 + 1
	var packed, text strings.Builder
	packed.WriteString("\xba\x00\x02\x00\x01") // a map of n
	for i := range n {
		fmt.Fprintf(&packed, "\x65%05x\x01", i)
		fmt.Fprintf(&text, `,"%05x":1`, i)
	}
	for in, want := range map[string]string{
		packed.String(): "{" + text.String()[1:] + "}",
		"\x9a\x00\x02\x00\x01" + strings.Repeat("\x01", n): "[1" + strings.Repeat(",1", n-1) + "]",
	} {
		if got, err := CBORToJSON([]byte(in), 0); err != nil || string(got) != want {
			t.Errorf("%x…: %v", in[:5], err)
		}
	}
	if _, err := CBORToJSON([]byte("\x9a\x7f\xff\xff\xff\x01"), 0); err == nil {
		t.Error("an array that claims to be longer than the document is accepted")
	}
}

func TestNewValidates(t *testing.T) {
	doc, err := New(&Definition{Standard: Standard, Agent: Agent{Name: "A", Goal: "G"}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := stdjson.Marshal(doc)
	if want := `{"sc_standard":"SC-006","agent":{"name":"A","goal":"G"}}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	text, err = json.Marshal(map[string]any{"doc": doc})
	if want := `{"doc":{"sc_standard":"SC-006","agent":{"name":"A","goal":"G"}}}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	diff(t, "source", string(doc.Source()), `{"sc_standard":"SC-006","agent":{"name":"A","goal":"G"}}`)
	if _, err := New(&Definition{Agent: Agent{Name: "A"}}); err == nil {
		t.Error("a definition without a standard is accepted")
	}
	if _, err := New[*State](nil); err == nil {
		t.Error("nothing is accepted")
	}
	if _, err := New(&Definition{Standard: Standard, Agent: Agent{Name: "A", Goal: "G", Model: &Model{Temperature: "warm"}}}); err == nil {
		t.Error("a number that is none is accepted")
	}
	if _, err := New(&Definition{Standard: Standard, Agent: Agent{Name: "A", Goal: "G"}, Extensions: jsontext.Value(`{"status":"draft","status":"x"}`)}); err == nil {
		t.Error("duplicate extensions are accepted")
	}
}

func TestExtension(t *testing.T) {
	doc := mustParse(t, fullDocuments(t)["agent.json"], Options{})
	if v, ok := doc.Extension("x-sc-schema"); !ok || string(v) != `"agent.schema.json"` {
		t.Errorf("%s %v", v, ok)
	}
	for _, name := range []string{"x-none", "agent", "", "x"} {
		if v, ok := doc.Extension(name); ok {
			t.Errorf("%s: %s", name, v)
		}
	}
}

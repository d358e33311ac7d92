package intents

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// FuzzCompile: whatever the schema, compiling and using it ends, and neither
// panics nor lists more than it may.
func FuzzCompile(f *testing.F) {
	for name, s := range builtin().intents {
		for _, schema := range s.schemas {
			f.Add([]byte(schema.JSON()), []byte(`{"id":"`+name+`"}`))
		}
	}
	for _, s := range []string{
		`{"$ref":"#"}`, `{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"$anchor":"x","if":{"$ref":"#x"}}}}`, `{"$schema":"http://json-schema.org/draft-07/schema#","items":[{},true],"additionalItems":false}`,
		`{"patternProperties":{"^(a|b)+$":{"unevaluatedProperties":false}},"propertyNames":{"maxLength":3}}`, `{"$id":"x","$ref":"x#/definitions/a","definitions":{"a":true}}`,
		`{"oneOf":[{"type":"array","uniqueItems":true,"contains":{"const":1}},{"multipleOf":0.1}]}`, `false`, `{"properties":{"a":{"$ref":"#"},"b%25":{"$ref":"#/properties/b%2525/not","not":{}}}}`,
	} {
		f.Add([]byte(s), []byte(`{"a":{"a":[1,1.0,"b",null]},"b%":1e400}`))
	}
	f.Fuzz(func(t *testing.T, schema, doc []byte) {
		s, err := Compile(schema)
		if err != nil {
			var refused *SchemaError
			if !errors.As(err, &refused) || len(refused.Problems) == 0 || len(refused.Problems) > MaxProblems {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, d := range [][]byte{doc, []byte("{}"), schema} {
			var invalid *ValidationError
			if err := s.Validate(d); err != nil && (!errors.As(err, &invalid) || len(invalid.Problems) == 0 || len(invalid.Problems) > MaxProblems || len(err.Error()) > 4_000) {
				t.Fatalf("%v", err)
			}
		}
	})
}

// FuzzPayload: for every embedded schema our verdict on a payload is the
// library's, shortcuts included. Only what we refuse before looking at any
// schema (duplicate names, hostile numbers) is ours alone.
func FuzzPayload(f *testing.F) {
	oracles := map[string]*jsonschema.Schema{}
	for name, known := range builtin().intents {
		for i, v := range []Variant{Task, Result, Error} {
			s, err := jsonschema.CompileString("fuzz:///schema", string(known.schemas[i].JSON()))
			if err != nil {
				f.Fatal(err)
			}
			oracles[fmt.Sprint(name, " ", v)] = s
		}
	}
	for _, p := range []string{
		`{}`, ` {} `, `{"pong":true}`, `{"pong":false,"ts":1}`, `{"status":"healthy","details":{}}`, `{"aee_version":"1","extensions":["a",1]}`, `{"namespace_filter":"ops"}`, `{"intents":[]}`,
		`{"id":"01JFB2R1","reason":"\u0000","corr":null}`, `{"found":true,"envelope":{"v":"1"},"hash":""}`, `{"acknowledged":1}`, `{"intent":"a","payload_to_validate":{},"type_hint":"x"}`,
		`{"valid":true,"errors":[[]]}`, `{"code":"E","message":"","retryable":null,"backoff_ms":1e3}`, `{"cancelled":true}`, `[]`, `null`, `"x"`, `{"id":"1234567é"}`,
	} {
		f.Add([]byte(p))
	}
	r := NewRegistry()
	f.Fuzz(func(t *testing.T, payload []byte) {
		if first := new(tree).parse(payload, maxDepth, maxValues); first != nil {
			if err := r.Validate(StatusPing, Task, payload); err == nil {
				t.Fatal("refused as a document, accepted as a payload")
			}
			return
		}
		d := json.NewDecoder(strings.NewReader(string(payload)))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("we read it, encoding/json does not: %v", err)
		}
		for key, oracle := range oracles {
			intent, variant, _ := strings.Cut(key, " ")
			want := oracle.Validate(v) == nil
			if err := r.Validate(intent, Variant(variant), payload); (err == nil) != want {
				t.Fatalf("%s: %v, the library says valid: %v", key, err, want)
			}
		}
	})
}

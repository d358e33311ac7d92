package intents

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/intents/schema"
	"github.com/santhosh-tekuri/jsonschema/v5"
)

// FuzzPayload: for every embedded schema our verdict on a payload equals the library's,
// shortcuts included. Only the checks that come before any schema (duplicate names,
// hostile numbers) are ours alone.
func FuzzPayload(f *testing.F) {
	oracles := map[string]*jsonschema.Schema{}
	for name, known := range builtin().intents {
		for i, v := range variants {
			s, err := jsonschema.CompileString("fuzz:///schema", string(known.schemas[i]().JSON()))
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
	anything, err := schema.Compile([]byte("true"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if anything.Validate(payload) != nil {
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

package schema

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzCompile: for every schema, compiling and using it ends, does not panic, and lists
// no more problems than it may.
func FuzzCompile(f *testing.F) {
	published, err := filepath.Glob("../*.schema.json")
	if err != nil || len(published) == 0 {
		f.Fatalf("the schemas of the mesh's own intents: %v, %v", published, err)
	}
	for _, name := range published {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, []byte(`{"id":"01JFB2R1"}`))
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
			var refused *Error
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

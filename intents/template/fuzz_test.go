package template_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/intents/schema"
	"github.com/aeemesh/aeemesh/intents/template"
)

// A template that Parse accepts is valid, keeps its hash when it is encoded and parsed, has a JSON
// Schema and a form, and In works for any language.
func FuzzParse(f *testing.F) {
	f.Add([]byte(base))
	f.Add([]byte(`{"schema_id":"a","scenario":"a","keys":[{"key_name":"b","key_type":"object","required":false,"semantic_description":"B.","value_schema":{"type":"object","enum":[{}]},"default_value":{},"semantic_descriptions":{"de":"B."}}]}`))
	f.Add([]byte(`{"schema_id":"a","scenario":"a","keys":[],"response_schema":{"properties":{"a":{"$ref":"#"}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := template.Parse(raw)
		if err != nil {
			var refused *template.Error
			if !errors.As(err, &refused) || len(refused.Problems) == 0 {
				t.Fatal(err)
			}
			return
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := template.Parse(text); err != nil || again.Hash() != got.Hash() || got.Hash() == "" {
			t.Fatalf("%v\n%s", err, text)
		}
		s := got.JSONSchema()
		if _, err := schema.Compile(s); err != nil {
			t.Fatalf("%v\n%s", err, s)
		}
		if _, err := template.NewForm(got, template.FormOptions{}); err != nil {
			t.Fatal(err)
		}
		if one, _ := got.In("de, en;q=0.5"); one.Validate() != nil {
			t.Fatal(one.Validate())
		}
	})
}

// An accepted patch is unchanged after encoding and parsing, and neither removes a key nor changes
// its type.
func FuzzParsePatch(f *testing.F) {
	f.Add([]byte(basePatch))
	s := stay(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := template.ParsePatch(raw)
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := template.ParsePatch(text); err != nil || again.Hash() != p.Hash() || p.Hash() == "" {
			t.Fatalf("%v\n%s", err, text)
		}
		p.ParentSchemaID = s.SchemaID
		got, err := s.Apply(*p)
		if err != nil {
			return
		}
		for i, k := range s.Keys[:len(s.Keys)-1] {
			if got.Keys[i].Name != k.Name || got.Keys[i].Type != k.Type || got.Keys[i].Required != k.Required || string(got.Keys[i].Value) != string(k.Value) {
				t.Fatalf("key %d has changed: %+v", i, got.Keys[i])
			}
		}
	})
}

// Whatever a client sends, the check ends, and what it accepts is JSON that the form
// accepts again.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"city":"Porto","nights":2,"x":[1,{"y":"}"}]}`, `{"city":null,"nights":2.0,"other":["a",""]}`, "{\"c\\u0069ty\" : \"a\\\"\",\t\"nights\":3}", `[]`, `{`} {
		f.Add([]byte(seed))
	}
	s := stay(f)
	s.Keys[4].Property = ""
	open := form(f, s, template.FormOptions{})
	closed := form(f, s, template.FormOptions{Unknown: template.UnknownRefused})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := open.Check(raw)
		if err != nil {
			var bad *template.PayloadError
			if !errors.As(err, &bad) || len(bad.Problems) == 0 {
				t.Fatal(err)
			}
			return
		}
		if !json.Valid(got.Values) {
			t.Fatalf("%q", got.Values)
		}
		again, err := closed.Check(got.Values)
		if err != nil || string(again.Values) != string(got.Values) {
			t.Fatalf("%v\n%s\n%s", err, got.Values, again.Values)
		}
		_, _ = closed.Check(raw)
	})
}

func FuzzParsePayload(f *testing.F) {
	f.Add([]byte(`{"schema_id":"a","payload":{"b":1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := template.ParsePayload(raw)
		if err != nil {
			return
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := template.ParsePayload(text); err != nil || again.SchemaID != got.SchemaID {
			t.Fatal(err)
		}
	})
}

// A template made from any schema is valid.
func FuzzFromJSONSchema(f *testing.F) {
	f.Add([]byte(stay(f).JSONSchema()))
	f.Add([]byte(`{"properties":{"aB":{"anyOf":[{"$ref":"#/$defs/x"},{"type":"null"}]},"other":{"type":"array","items":{"type":"string"}}},"$defs":{"x":{"enum":[1,2.5],"description":"X."}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := template.FromJSONSchema("a_v1", "a", raw, nil)
		if err != nil {
			return
		}
		if err := got.Validate(); err != nil {
			t.Fatal(err)
		}
		again, err := template.FromJSONSchema("", "", got.JSONSchema(), nil)
		if err != nil || again.Hash() != got.Hash() {
			t.Fatalf("%v\n%s", err, got.JSONSchema())
		}
	})
}

package template_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aeemesh/aeemesh/intents/schema"
	"github.com/aeemesh/aeemesh/intents/template"
)

// drawTemplate draws a valid template.
func drawTemplate(t *rapid.T) *template.Template {
	texts := rapid.StringMatching(`[A-Z][a-z'<>&é ]{0,20}\.( [A-Z]\n[a-z"\\]{1,5})?`)
	s := &template.Template{SchemaID: rapid.StringMatching(`[a-z]{1,8}_v[1-9]`).Draw(t, "id"), Scenario: rapid.StringMatching(`[a-zé]([a-z_ ]{0,6}[a-z])?`).Draw(t, "scenario")}
	if rapid.Bool().Draw(t, "described") {
		s.Description, s.Language = texts.Draw(t, "description"), rapid.SampledFrom([]string{"", "en", "pt-BR"}).Draw(t, "language")
	}
	if rapid.Bool().Draw(t, "responds") {
		s.ResponseSchema = json.RawMessage(`{"type":"object","properties":{"id":{"type":"string"}}}`)
	}
	kinds := []struct {
		kind     template.Type
		values   []string // value_schemas
		defaults []string
	}{
		{template.String, []string{``, `{"enum":["a","b"]}`, `{"type":"string","maxLength":4}`, `{"description":"inner","minLength":1}`, `{}`, `{"title":"T","pattern":"^[ab]"}`, `{"allOf":[{"maxLength":9}]}`}, []string{``, `"a"`}},
		{template.Integer, []string{``, `{"minimum":1,"maximum":9}`, `{"type":["integer","null"]}`, `{"default":7}`}, []string{``, `3`}},
		{template.Number, []string{``, `{"exclusiveMinimum":0.5}`}, []string{``, `1.5`}},
		{template.Boolean, []string{``, `{"const":true}`}, []string{``, `true`}},
		{template.Array, []string{``, `{"items":{"type":"string"},"maxItems":3}`}, []string{``, `["a"]`}},
		{template.Object, []string{``, `{"properties":{"innerName":{"type":"string"}},"required":["innerName"]}`}, []string{``, `{"innerName":"a"}`}},
		{template.Null, []string{``}, []string{``}},
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}(_[a-z0-9]{1,3})?`), 0, 5, rapid.ID[string]).Draw(t, "names") {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		k := template.Key{Name: name, Type: kind.kind, Required: rapid.Bool().Draw(t, "required"), Description: texts.Draw(t, "text"),
			Experimental: rapid.Bool().Draw(t, "experimental"), Deprecated: rapid.Bool().Draw(t, "deprecated")}
		if v := rapid.SampledFrom(kind.values).Draw(t, "value"); v != "" {
			k.Value = json.RawMessage(v)
		}
		if v := rapid.SampledFrom(kind.defaults).Draw(t, "default"); v != "" {
			k.Default = json.RawMessage(v)
		}
		if rapid.Bool().Draw(t, "lingual") {
			k.Descriptions = map[string]string{"de": texts.Draw(t, "de")}
		}
		if rapid.Bool().Draw(t, "renamed") {
			k.Property = name + "Name"
		}
		s.Keys = append(s.Keys, k)
	}
	if rapid.Bool().Draw(t, "other") {
		s.Keys = append(s.Keys, template.Key{Name: template.Other, Type: rapid.SampledFrom([]template.Type{template.String, template.Array}).Draw(t, "other's type"), Description: "All else."})
	}
	return s.Complete()
}

func TestJSONSchemaRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawTemplate(t)
		if err := want.Validate(); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if parsed, err := template.Parse(text); err != nil || parsed.Hash() != want.Hash() {
			t.Fatalf("Parse: %v\n%s", err, text)
		}
		raw := want.JSONSchema()
		if _, err := schema.Compile(raw); err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		got, err := template.FromJSONSchema("", "", raw, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		if got.Hash() != want.Hash() {
			a, _ := json.Marshal(got)
			t.Fatalf("%s\n%s\n%s", a, text, raw)
		}
	})
}

// A payload fits the JSON Schema of a template if and only if its form accepts it, for
// payloads without null and unknown keys.
func TestJSONSchemaMeansTheForm(t *testing.T) {
	t.Parallel()
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawTemplate(t)
		f, err := template.NewForm(s, template.FormOptions{})
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := schema.Compile(s.JSONSchema())
		if err != nil {
			t.Fatal(err)
		}
		var members []string
		for _, k := range s.Keys {
			if k.Required || rapid.Bool().Draw(t, "there") {
				members = append(members, fmt.Sprintf("%q:%s", k.Name, rapid.SampledFrom([]string{`"a"`, `"zzzzzzzzzz"`, `3`, `12`, `1.5`, `true`, `["a"]`, `{"innerName":"a"}`, `{}`, string(exampleOf(k))}).Draw(t, "value")))
			}
		}
		payload := json.RawMessage("{" + strings.Join(members, ",") + "}")
		filled, err := f.Check(payload)
		if wrong := compiled.Validate(payload); (err == nil) != (wrong == nil) {
			t.Fatalf("form: %v\nschema: %v\n%s", err, wrong, payload)
		}
		if err != nil {
			return
		}
		accepted++
		for _, k := range s.Keys { // the filled values are a valid payload again
			if k.Property != "" {
				return
			}
		}
		again, err := f.Check(filled.Values)
		if err != nil || string(again.Values) != string(filled.Values) {
			t.Fatalf("%v\n%s\n%s", err, filled.Values, again.Values)
		}
	})
	if accepted == 0 {
		t.Error("no payload is accepted: the test shows nothing")
	}
}

func exampleOf(k template.Key) string {
	return map[template.Type]string{template.String: `"a"`, template.Integer: "3", template.Number: "1.5", template.Boolean: "true", template.Array: `["a"]`, template.Object: `{"innerName":"a"}`, template.Null: `"no"`}[k.Type]
}

func TestFromJSONSchema(t *testing.T) {
	t.Parallel()
	input := json.RawMessage(`{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "description": "Book a table.", "type": "object", "additionalProperties": false,
		"dependentRequired": {"seatingArea": ["partySize"]},
		"required": ["partySize", "day"],
		"properties": {
			"day": {"type": "string", "format": "date", "description": "The day."},
			"partySize": {"type": "integer", "minimum": 1, "maximum": 12, "description": "How many people."},
			"seatingArea": {"enum": ["terrace", "hall"]},
			"contact": {"$ref": "#/$defs/contact", "description": "Whom to call."},
			"children": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": null, "title": "Children"},
			"note": {"type": ["string", "null"], "description": "A note."},
			"ratio": {"type": "number", "description": "A ratio.", "default": 0.5, "deprecated": true}
		},
		"$defs": {"contact": {"type": "object", "description": "A contact.", "properties": {"phoneNumber": {"$ref": "#/$defs/phone"}}, "required": ["phoneNumber"]}, "phone": {"type": "string", "pattern": "^[+0-9]+$"}}
	}`)
	got, err := template.FromJSONSchema("table_v1", "table booking", input, json.RawMessage(`{"type": "object"}`))
	if err != nil {
		t.Fatal(err)
	}
	want, err := template.Parse([]byte(`{"schema_id": "table_v1", "scenario": "table booking", "description": "Book a table.", "response_schema": {"type": "object"}, "keys": [
		{"key_name": "day", "key_type": "string", "required": true, "semantic_description": "The day.", "value_schema": {"format": "date"}},
		{"key_name": "party_size", "property": "partySize", "key_type": "integer", "required": true, "semantic_description": "How many people.", "value_schema": {"minimum": 1, "maximum": 12}},
		{"key_name": "seating_area", "property": "seatingArea", "key_type": "string", "required": false, "semantic_description": "Seating area, of type string. Acceptable values: terrace, hall.", "value_schema": {"enum": ["terrace", "hall"]}},
		{"key_name": "contact", "key_type": "object", "required": false, "semantic_description": "Whom to call.", "value_schema": {"properties": {"phoneNumber": {"type": "string", "pattern": "^[+0-9]+$"}}, "required": ["phoneNumber"]}},
		{"key_name": "children", "key_type": "integer", "required": false, "semantic_description": "Children, of type integer.", "value_schema": {"title": "Children", "minimum": 0}},
		{"key_name": "note", "key_type": "string", "required": false, "semantic_description": "A note."},
		{"key_name": "ratio", "key_type": "number", "required": false, "semantic_description": "A ratio.", "default_value": 0.5, "deprecated": true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Hash() != want.Hash() {
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		t.Errorf("%s\nwant\n%s", a, b)
	}
	filled, err := form(t, got, template.FormOptions{}).Check(json.RawMessage(`{"day": "2031-05-01", "party_size": 4}`))
	if err != nil || string(filled.Values) != `{"day":"2031-05-01","partySize":4,"ratio":0.5}` {
		t.Errorf("%s, %v", filled.Values, err)
	}
}

func TestFromJSONSchemaRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ input, pointer, rule string }{
		"no object":          {`{"type": "array"}`, "", "type"},
		"true":               {`true`, "", "type"},
		"no schema":          {`{"type": "objekt"}`, "/type", "type"},
		"no single type":     {`{"properties": {"a": {"type": ["string", "integer"]}}}`, "/properties/a", "type"},
		"no type":            {`{"properties": {"a": {"description": "A."}}}`, "/properties/a", "type"},
		"no ASCII name":      {`{"properties": {"größe": {"type": "string"}}}`, "/properties/größe", "key_name"},
		"begins with digit":  {`{"properties": {"1st": {"type": "string"}}}`, "/properties/1st", "key_name"},
		"one name":           {`{"properties": {"dayOfWeek": {"type": "string"}, "day_of_week": {"type": "string"}}}`, "/properties/day_of_week", "unique"},
		"refers to itself":   {`{"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}`, "", "$ref"},
		"an anchor":          {`{"properties": {"a": {"$ref": "#x"}}, "$defs": {"a": {"$anchor": "x", "type": "array"}}}`, "/properties/a/$ref", "$ref"},
		"other is a number":  {`{"properties": {"other": {"type": "number"}}}`, "/properties/other", "other"},
		"other is bounded":   {`{"properties": {"other": {"type": "string", "maxLength": 5}}}`, "/properties/other", "other"},
		"other is required":  {`{"properties": {"other": {"type": "string"}}, "required": ["other"]}`, "/properties/other", "other"},
		"required is absent": {`{"properties": {}, "required": ["a"]}`, "/required", "required"},
		"a bad default":      {`{"properties": {"a": {"type": "string", "default": 1}}}`, "/properties/a", "type"},
		"growing references": {`{"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {` + growing(15) + `"d15": {"type": "string"}}}`, "", "$ref"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := template.FromJSONSchema("a_v1", "a", json.RawMessage(tt.input), nil)
			problems := problemsOf(t, err)
			for _, p := range problems {
				if p.Rule == tt.rule && (strings.HasPrefix(p.Pointer, tt.pointer)) {
					return
				}
			}
			t.Errorf("want %s (%s), got %v", tt.pointer, tt.rule, problems)
		})
	}
}

// growing defines types, each of which contains the next one eight times.
func growing(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"d%d": {"type": "object", "properties": {`, i)
		for j := range 8 {
			if j > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, `"p%d": {"$ref": "#/$defs/d%d"}`, j, i+1)
		}
		b.WriteString(`}}, `)
	}
	return b.String()
}

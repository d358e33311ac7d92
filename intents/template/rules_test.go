package template_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/intents/template"
)

// base is a valid template; each test breaks it in one place.
const base = `{
  "schema_id": "stay_v1",
  "scenario": "hotel stay",
  "language": "en",
  "keys": [
    {"key_name": "city", "key_type": "string", "required": true, "default_value": null, "semantic_description": "The city. Example: 'down in Porto' -> 'Porto'."},
    {"key_name": "nights", "key_type": "integer", "required": false, "default_value": 1, "value_schema": {"minimum": 1, "maximum": 30}, "semantic_description": "How many nights. Example: 'a week' -> 7."},
    {"key_name": "other", "key_type": "string", "required": false, "default_value": null, "semantic_description": "All else."}
  ]
}`

func problemsOf(t *testing.T, err error) []template.Problem {
	t.Helper()
	var refused *template.Error
	if !errors.As(err, &refused) {
		t.Fatalf("%v is no *template.Error", err)
	}
	for _, p := range refused.Problems {
		if p.Remedy == "" {
			t.Errorf("%s has no remedy", p)
		}
	}
	return refused.Problems
}

// One invalid template for each MUST of sections 4.1 and 4.3, and for each rule of this package.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	if _, err := template.Parse([]byte(base)); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 4001)
	for _, tt := range []struct {
		name, old, new string
		pointer, rule  string
	}{
		// SDSI 4.1, the template
		{"no schema_id", `"schema_id": "stay_v1",`, ``, "", "required"},
		{"no scenario", `"scenario": "hotel stay",`, ``, "", "required"},
		{"no keys", `"keys": [`, `"x-keys": [`, "", "required"},
		{"schema_id is no string", `"stay_v1"`, `1`, "/schema_id", "type"},
		{"schema_id is empty", `"stay_v1"`, `""`, "/schema_id", "pattern"},
		{"scenario is no string", `"hotel stay"`, `["hotel"]`, "/scenario", "type"},
		{"scenario is empty", `"hotel stay"`, `""`, "/scenario", "minLength"},
		{"keys is no array", `"keys": [`, `"keys": {}, "x": [`, "/keys", "type"},
		{"a key is no object", `"keys": [`, `"keys": ["city",`, "/keys/0", "type"},
		// SDSI 4.1, a key
		{"no key_name", `"key_name": "city", `, ``, "/keys/0", "required"},
		{"no key_type", `"city", "key_type": "string",`, `"city",`, "/keys/0", "required"},
		{"no semantic_description", `, "semantic_description": "The city. Example: 'down in Porto' -> 'Porto'."`, ``, "/keys/0", "required"},
		{"no required", `"required": true, `, ``, "/keys/0", "required"},
		{"key_name is no string", `"city"`, `7`, "/keys/0/key_name", "type"},
		{"camelCase", `"city"`, `"cityName"`, "/keys/0/key_name", "pattern"},
		{"two underscores", `"city"`, `"city__name"`, "/keys/0/key_name", "pattern"},
		{"names are unique", `"nights"`, `"city"`, "/keys/1/key_name", "unique"},
		{"no type of JSON Schema", `"city", "key_type": "string"`, `"city", "key_type": "float"`, "/keys/0/key_type", "enum"},
		{"semantic_description is no string", `"The city. Example: 'down in Porto' -> 'Porto'."`, `{"en": "The city."}`, "/keys/0/semantic_description", "type"},
		{"semantic_description is empty", `"The city. Example: 'down in Porto' -> 'Porto'."`, `""`, "/keys/0/semantic_description", "minLength"},
		{"semantic_description is blank", `"The city. Example: 'down in Porto' -> 'Porto'."`, `" \n"`, "/keys/0/semantic_description", "text"},
		{"required is no boolean", `"required": true`, `"required": "yes"`, "/keys/0/required", "type"},
		{"default of another type", `"default_value": 1`, `"default_value": "one"`, "/keys/1/default_value", "type"},
		{"default with a fraction for an integer", `"default_value": 1`, `"default_value": 1.5`, "/keys/1/default_value", "type"},
		// SDSI 4.3
		{"other is required", `"other", "key_type": "string", "required": false`, `"other", "key_type": "string", "required": true`, "/keys/2/required", "other"},
		{"other is a number", `"other", "key_type": "string"`, `"other", "key_type": "number"`, "/keys/2/key_type", "other"},
		{"other is constrained", `"All else."`, `"All else.", "value_schema": {"maxLength": 3}`, "/keys/2/value_schema", "other"},
		{"other has a default", `"other", "key_type": "string", "required": false, "default_value": null`, `"other", "key_type": "string", "required": false, "default_value": "a view"`, "/keys/2/default_value", "other"},
		{"other on trial", `"All else."`, `"All else.", "experimental": true`, "/keys/2", "other"},
		{"other under another name", `"All else."`, `"All else.", "property": "notes"`, "/keys/2/property", "other"},
		// ours
		{"default beyond value_schema", `"default_value": 1`, `"default_value": 31`, "/keys/1/default_value", "maximum"},
		{"value_schema does not compile", `"minimum": 1`, `"minimum": "one"`, "/keys/1/value_schema/minimum", "minimum"},
		{"value_schema is no schema", `{"minimum": 1, "maximum": 30}`, `[1]`, "/keys/1/value_schema", "type"},
		{"value_schema contradicts key_type", `{"minimum": 1, "maximum": 30}`, `{"type": "string"}`, "/keys/1/value_schema/type", "type"},
		{"enum of another type", `{"minimum": 1, "maximum": 30}`, `{"enum": [1, "two"]}`, "/keys/1/value_schema/enum/1", "type"},
		{"const of another type", `{"minimum": 1, "maximum": 30}`, `{"const": "one"}`, "/keys/1/value_schema/const", "type"},
		{"keyword of another type", `{"minimum": 1, "maximum": 30}`, `{"pattern": "^a"}`, "/keys/1/value_schema/pattern", "keyword"},
		{"value_schema refers elsewhere", `{"minimum": 1, "maximum": 30}`, `{"not": {"$ref": "#/x"}}`, "/keys/1/value_schema/not/$ref", "keyword"},
		{"value_schema with a type does not compile", `{"minimum": 1, "maximum": 30}`, `{"type": "integer", "minimum": true}`, "/keys/1/value_schema/minimum", "minimum"},
		{"language is no tag", `"language": "en"`, `"language": "english!"`, "/language", "language"},
		{"description in no language", `"All else."`, `"All else.", "semantic_descriptions": {"qqqqq": "Tudo o resto."}`, "/keys/2/semantic_descriptions/qqqqq", "language"},
		{"one language twice", `"All else."`, `"All else.", "semantic_descriptions": {"pt-BR": "a", "pt-br": "b"}`, "/keys/2/semantic_descriptions/pt-br", "unique"},
		{"response_schema does not compile", `"language": "en"`, `"response_schema": {"type": "objekt"}`, "/response_schema/type", "type"},
		{"response_schema takes no object", `"language": "en"`, `"response_schema": {"type": "array"}`, "/response_schema", "type"},
		{"two keys with one property", `"All else."`, `"All else."}, {"key_name": "rooms", "property": "city", "key_type": "integer", "required": false, "semantic_description": "Rooms."`, "/keys/3/property", "unique"},
		{"member with other case", `"schema_id": "stay_v1",`, `"schema_id": "stay_v1", "Schema_ID": "stay_v2",`, "/Schema_ID", "member"},
		{"member of a key with other case", `"required": true,`, `"required": true, "keyName": "town",`, "/keys/0/keyName", "member"},
		{"member twice", `"schema_id": "stay_v1",`, `"schema_id": "stay_v1", "schema_id": "stay_v2",`, "", "json"},
		{"not JSON", `"keys": [`, `"keys": [,`, "/keys/0", "json"},
		// hostile
		{"reserved name", `"city"`, `"__proto__"`, "/keys/0/key_name", "pattern"},
		{"name of every object", `"city"`, `"constructor"`, "/keys/0/key_name", "reserved"},
		{"homoglyph", `"city"`, "\"\u0441ity\"", "/keys/0/key_name", "pattern"},
		{"homoglyph in schema_id", `"stay_v1"`, "\"st\u0430y_v1\"", "/schema_id", "pattern"},
		{"name without an end", `"city"`, `"` + strings.Repeat("c", 65) + `"`, "/keys/0/key_name", "maxLength"},
		{"description without an end", `"All else."`, `"` + long + `"`, "/keys/2/semantic_description", "maxLength"},
		{"escape sequence", `"All else."`, `"All \u001b[2J else."`, "/keys/2/semantic_description", "text"},
		{"text turned round", `"All else."`, `"All \u202eesle."`, "/keys/2/semantic_description", "text"},
		{"hidden tags", `"All else."`, "\"All else.\U000E0041\"", "/keys/2/semantic_description", "text"},
		{"hidden selectors", `"All else."`, "\"All else.\U000E0101\"", "/keys/2/semantic_description", "text"},
		{"line break in the scenario", `"hotel stay"`, `"hotel\nstay"`, "/scenario", "text"},
		{"space around the scenario", `"hotel stay"`, `" hotel stay"`, "/scenario", "text"},
		{"hidden in another language", `"All else."`, `"All else.", "semantic_descriptions": {"pt": "a\u0000b"}`, "/keys/2/semantic_descriptions/pt", "text"},
		{"a default without an end", `"key_type": "string", "required": true, "default_value": null`, `"key_type": "string", "required": true, "default_value": "` + long + long + `"`, "/keys/0/default_value", "limit"},
		{"number that has no canonical form", `"default_value": 1`, `"default_value": 9007199254740993`, "/keys/1/default_value", "number"},
		{"number in response_schema that has no canonical form", `"language": "en"`, `"response_schema": {"type": "object", "properties": {"n": {"maximum": 9223372036854775807}}}`, "/response_schema", "number"},
		{"a slow expression", `{"minimum": 1, "maximum": 30}`, `{"allOf": [{"pattern": "(a{900}){900}"}]}`, "/keys/1/value_schema/allOf/0/pattern", "pattern"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			raw := strings.Replace(base, tt.old, tt.new, 1)
			if raw == base {
				t.Fatal("the case changes nothing")
			}
			_, err := template.Parse([]byte(raw))
			problems := problemsOf(t, err)
			for _, p := range problems {
				if p.Pointer == tt.pointer && p.Rule == tt.rule {
					return
				}
			}
			t.Errorf("want %s (%s), got %v", tt.pointer, tt.rule, problems)
		})
	}
}

// Validate applies the same rules to a template made in Go as Parse.
func TestValidateIsParse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]*template.Template{
		"zero":         {},
		"bad UTF-8":    {SchemaID: "a", Scenario: "a\xff", Keys: []template.Key{}},
		"no JSON":      {SchemaID: "a", Scenario: "a", Keys: []template.Key{{Name: "a", Type: template.String, Description: "A.", Default: json.RawMessage(`{`)}}},
		"duplicate":    {SchemaID: "a", Scenario: "a", Keys: []template.Key{{Name: "a", Type: template.Object, Description: "A.", Default: json.RawMessage(`{"a":1,"a":2}`)}}},
		"unknown type": {SchemaID: "a", Scenario: "a", Keys: []template.Key{{Name: "a", Type: "text", Description: "A."}}},
		"twice":        {SchemaID: "a", Scenario: "a", Keys: []template.Key{{Name: "a", Type: "null", Description: "A."}, {Name: "a", Type: "null", Description: "A."}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problemsOf(t, tt.Validate())
			if tt.JSONSchema() != nil {
				t.Error("has a JSON Schema")
			}
		})
	}
	good := &template.Template{SchemaID: "a", Scenario: "free text"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func TestParseListsAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := template.Parse([]byte(`{"scenario": "a\tb", "language": "!!", "response_schema": {"type": 1}, "keys": [
		{"key_name": "A", "key_type": "text", "required": 1},
		{"key_name": "b", "key_type": "integer", "required": false, "default_value": true, "semantic_description": ""},
		{"key_name": "c", "key_type": "integer", "required": false, "value_schema": {"minimum": []}, "semantic_description": "C."},
		{"key_name": "other", "key_type": "object", "required": true, "semantic_description": "All else."},
		{"key_name": "d", "key_type": "integer", "required": false, "default_value": 3, "value_schema": {"maximum": 2}, "semantic_description": "D."}]}`))
	var got []string
	for _, p := range problemsOf(t, err) {
		got = append(got, p.Pointer+" "+p.Rule)
	}
	for _, want := range []string{" required", "/scenario text", "/language language", "/response_schema/type type", "/keys/0/key_name pattern", "/keys/0/key_type enum",
		"/keys/0/required type", "/keys/0 required", "/keys/1/semantic_description minLength", "/keys/2/value_schema/minimum minimum", "/keys/4/default_value maximum", "/keys/3/required other", "/keys/3/key_type other"} {
		if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
			t.Errorf("%q is not among\n%s", want, strings.Join(got, "\n"))
		}
	}
}

func TestParseBoundsHostileTemplates(t *testing.T) {
	t.Parallel()
	key := `{"key_name": "k%d", "key_type": "string", "required": false, "semantic_description": "A."}`
	many := func(n int) string {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprintf(key, i)
		}
		return `{"schema_id": "a", "scenario": "a", "keys": [` + strings.Join(keys, ",") + `]}`
	}
	for name, raw := range map[string]string{
		"10,000 keys":      many(10_000),
		"one key too many": many(template.MaxKeys + 1),
		"deep":             `{"schema_id": "a", "scenario": "a", "keys": [], "x-a": ` + strings.Repeat("[", 60_000) + strings.Repeat("]", 60_000) + `}`,
		"null":             `null`, "array": `[]`, "empty": ``, "text after": `{} {}`,
	} {
		_, err := template.Parse([]byte(raw))
		problems := problemsOf(t, err)
		if text := err.Error(); len(problems) > template.MaxProblems || len(text) > 16<<10 {
			t.Errorf("%s: %d problems, %d bytes", name, len(problems), len(text))
		}
	}
	if _, err := template.Parse([]byte(many(template.MaxKeys))); err != nil {
		t.Error(err)
	}
}

// Members of other implementations are accepted, and a missing "other" is added.
func TestParseCompletes(t *testing.T) {
	t.Parallel()
	got, err := template.Parse([]byte(`{"schema_id": "a", "scenario": "a", "hash": "sha256:0", "patches": [], "keys": [
		{"key_name": "b", "key_type": "string", "required": false, "default_value": null, "semantic_description": "B.", "weight": 3}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Keys) != 2 || got.Keys[1].Name != template.Other || got.Keys[1].Required || got.Keys[0].Default != nil {
		t.Errorf("%+v", got.Keys)
	}
	if again := got.Complete(); len(again.Keys) != 2 {
		t.Errorf("%d keys after a second Complete", len(again.Keys))
	}
	short := &template.Template{SchemaID: "a", Scenario: "a", Keys: got.Keys[:1]}
	if short.Hash() != got.Hash() || !strings.HasPrefix(got.Hash(), "sha256:") {
		t.Error("the same template has two hashes")
	}
	changed := *short
	changed.Scenario = "b"
	if changed.Hash() == short.Hash() {
		t.Error("two templates have one hash")
	}
}

package template_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/intents/template"
)

// stay is a template with a key of each kind.
func stay(t testing.TB) *template.Template {
	t.Helper()
	s, err := template.Parse([]byte(`{"schema_id": "stay_v1", "scenario": "hotel stay", "keys": [
		{"key_name": "city", "key_type": "string", "required": true, "semantic_description": "The city."},
		{"key_name": "nights", "key_type": "integer", "required": true, "value_schema": {"minimum": 1, "maximum": 30}, "semantic_description": "How many nights."},
		{"key_name": "board", "key_type": "string", "required": false, "default_value": "breakfast", "value_schema": {"enum": ["none", "breakfast", "half"]}, "semantic_description": "Meals."},
		{"key_name": "ages", "key_type": "array", "required": false, "value_schema": {"items": {"type": "integer", "minimum": 0}}, "semantic_description": "The guests' ages."},
		{"key_name": "late_arrival", "key_type": "boolean", "required": false, "property": "lateArrival", "deprecated": true, "semantic_description": "After ten."},
		{"key_name": "nothing", "key_type": "null", "required": false, "semantic_description": "Always null."}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func form(t testing.TB, s *template.Template, o template.FormOptions) *template.Form {
	t.Helper()
	f, err := template.NewForm(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCheckFillsValues(t *testing.T) {
	t.Parallel()
	f := form(t, stay(t), template.FormOptions{})
	list := stay(t)
	list.Keys[len(list.Keys)-1].Type = template.Array
	asList := form(t, list, template.FormOptions{})
	for name, tt := range map[string]struct {
		form            *template.Form
		payload, values string
		other           []string
	}{
		"defaults":            {f, `{"city": "Porto", "nights": 2}`, `{"city":"Porto","nights":2,"board":"breakfast"}`, nil},
		"template's order":    {f, `{"board":"none","nights":2,"city":"Porto"}`, `{"city":"Porto","nights":2,"board":"none"}`, nil},
		"null is left out":    {f, `{"city":"Porto","nights":2,"board":null,"ages":null,"other":null,"strange":null}`, `{"city":"Porto","nights":2,"board":"breakfast"}`, nil},
		"null is a value":     {f, `{"city":"Porto","nights":2,"nothing":null}`, `{"city":"Porto","nights":2,"board":"breakfast","nothing":null}`, nil},
		"escaped names":       {f, `{"c\u0069ty":"Porto","nights":2}`, `{"city":"Porto","nights":2,"board":"breakfast"}`, nil},
		"handler's names":     {f, `{"city":"Porto","nights":2,"late_arrival":true}`, `{"city":"Porto","nights":2,"board":"breakfast","lateArrival":true}`, nil},
		"values with all":     {f, `{ "ages" : [ 1 , 2 ] ,"city":"a\"},{\\" , "nights" :2 }`, `{"city":"a\"},{\\","nights":2,"board":"breakfast","ages":[ 1 , 2 ]}`, nil},
		"other":               {f, `{"city":"Porto","nights":2,"other":"a view"}`, `{"city":"Porto","nights":2,"board":"breakfast","other":"a view"}`, []string{"a view"}},
		"other as a list":     {f, `{"city":"Porto","nights":2,"other":["a view","no stairs"]}`, `{"city":"Porto","nights":2,"board":"breakfast","other":"a view; no stairs"}`, []string{"a view", "no stairs"}},
		"other into a list":   {asList, `{"city":"Porto","nights":2,"other":"a view"}`, `{"city":"Porto","nights":2,"board":"breakfast","other":["a view"]}`, []string{"a view"}},
		"other as it is":      {asList, `{"city":"Porto","nights":2,"other":["a \"view\" & <no> stairs","ü"]}`, `{"city":"Porto","nights":2,"board":"breakfast","other":["a \"view\" & <no> stairs","ü"]}`, []string{`a "view" & <no> stairs`, "ü"}},
		"other is empty":      {f, `{"city":"Porto","nights":2,"other":["", " \n"]}`, `{"city":"Porto","nights":2,"board":"breakfast"}`, nil},
		"other is cleaned":    {f, `{"city":"Porto","nights":2,"other":"a\u001b[2J \u202eview\u0000"}`, `{"city":"Porto","nights":2,"board":"breakfast","other":"a [2J  view"}`, []string{"a [2J  view"}},
		"unknown keys":        {f, `{"city":"Porto","nights":2,"pets":"one dog","floor":3,"x":{"a": [1]}}`, `{"city":"Porto","nights":2,"board":"breakfast","other":"pets: one dog; floor: 3; x: {\"a\":[1]}"}`, []string{"pets: one dog", "floor: 3", `x: {"a":[1]}`}},
		"unknown beside":      {f, `{"pets":"one dog","city":"Porto","other":"a view","nights":2}`, `{"city":"Porto","nights":2,"board":"breakfast","other":"a view; pets: one dog"}`, []string{"a view", "pets: one dog"}},
		"a whole number":      {f, `{"city":"Porto","nights":20e-1,"floors":{"top":2.0}}`, `{"city":"Porto","nights":2,"board":"breakfast","other":"floors: {\"top\":2.0}"}`, []string{`floors: {"top":2.0}`}},
		"names of prototypes": {f, `{"city":"Porto","nights":2,"__proto__":{"a":1}}`, `{"city":"Porto","nights":2,"board":"breakfast","other":"__proto__: {\"a\":1}"}`, []string{`__proto__: {"a":1}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.form.Check(json.RawMessage(tt.payload))
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Values) != tt.values || !reflect.DeepEqual(got.Other, tt.other) {
				t.Errorf("%s %q\nwant %s %q", got.Values, got.Other, tt.values, tt.other)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	open, closed := form(t, stay(t), template.FormOptions{}), form(t, stay(t), template.FormOptions{Unknown: template.UnknownRefused})
	for name, tt := range map[string]struct {
		form    *template.Form
		payload string
		want    string // key rule, …
	}{
		"required keys":         {open, `{}`, "city required, nights required"},
		"null for a required":   {open, `{"city":null,"nights":2}`, "city type"},
		"every key":             {open, `{"city":5,"nights":99,"board":"lunch","ages":["secret",-1],"late_arrival":"yes","other":{"a":1}}`, "city type, nights maximum, board enum, ages type, ages minimum, late_arrival type, other type"},
		"with nulls":            {open, `{"city":5,"nights":2,"board":null}`, "city type"},
		"other of numbers":      {open, `{"city":"Porto","nights":2,"other":[1]}`, "other type"},
		"fraction":              {open, `{"city":"Porto","nights":2.5}`, "nights type"},
		"unknown keys":          {closed, `{"city":"Porto","nights":2,"pets":"secret"}`, "pets unknown"},
		"unknown and wrong":     {closed, `{"city":5,"pets":"secret","nights":2}`, "pets unknown, city type"},
		"no object":             {open, `["city"]`, " type"},
		"no JSON":               {open, `{"city":`, "city json"},
		"a key twice":           {open, `{"city":"Porto","nights":2,"city":"secret"}`, " json"},
		"number without an end": {open, `{"city":"Porto","nights":1e999999}`, "nights number"},
		"of an unknown key":     {open, `{"city":"Porto","nights":2,"pets":[{"a":1e999}]}`, "pets number"},
		"nested too deeply":     {open, `{"city":"Porto","nights":2,"pets":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, "pets limit"},
		"a key twice in one":    {open, `{"city":"Porto","nights":2,"pets":{"a":1,"a":"secret"}}`, "pets json"},
		"too large":             {open, `{"city":"` + strings.Repeat("x", template.MaxPayload) + `","nights":2}`, " limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.form.Check(json.RawMessage(tt.payload))
			var bad *template.PayloadError
			if !errors.As(err, &bad) {
				t.Fatal(err)
			}
			var got []string
			for _, p := range bad.Problems {
				got = append(got, p.Key+" "+p.Rule)
				if p.Remedy == "" || p.Key != "" && p.Key != "pets" && p.Description == "" {
					t.Errorf("%+v has no remedy or description", p)
				}
			}
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has a value of the payload: %s", err)
			}
		})
	}
}

// The error and "other" are bounded, whatever a client sends.
func TestCheckIsBounded(t *testing.T) {
	t.Parallel()
	s := &template.Template{SchemaID: "wide_v1", Scenario: "wide"}
	wrong := map[string]any{}
	for i := range template.MaxKeys - 1 {
		k := template.Key{Name: fmt.Sprintf("k%d", i), Type: template.Integer, Required: true, Description: strings.Repeat("long ", 700)}
		s.Keys, wrong[k.Name] = append(s.Keys, k), "text"
		if len(s.Keys)*3600 > template.MaxBytes-8000 {
			break
		}
	}
	payload, _ := json.Marshal(wrong)
	_, err := form(t, s, template.FormOptions{}).Check(payload)
	var bad *template.PayloadError
	if !errors.As(err, &bad) || len(bad.Problems) != len(s.Keys) || len(err.Error()) > 10<<10 {
		t.Errorf("%d problems of %d, %d bytes", len(bad.Problems), len(s.Keys), len(err.Error()))
	}
	strange := map[string]any{"city": "Porto", "nights": 2, "other": []string{strings.Repeat("é", 5000)}}
	for i := range 5000 {
		strange[fmt.Sprintf("unknown%d", i)] = "x"
	}
	payload, _ = json.Marshal(strange)
	got, err := form(t, stay(t), template.FormOptions{}).Check(payload)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Other) != template.MaxFragments || len(got.Other[0]) > template.MaxFragmentBytes+3 || len(got.Warnings) > 5 || !strings.Contains(strings.Join(got.Warnings, "\n"), "cut") {
		t.Errorf("%d fragments, %q", len(got.Other), got.Warnings)
	}
	_, err = form(t, stay(t), template.FormOptions{Unknown: template.UnknownRefused}).Check(payload)
	if !errors.As(err, &bad) || !bad.Truncated || len(err.Error()) > 10<<10 {
		t.Errorf("%d problems, %d bytes", len(bad.Problems), len(err.Error()))
	}
}

// SDSI 4.3: a payload is never refused for the content of "other".
func TestOtherIsNeverRefused(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]any{
		"a long text":    strings.Repeat("a view ", 10_000),
		"long texts":     slices.Repeat([]string{strings.Repeat("a view ", 1_000)}, 30),
		"many texts":     slices.Repeat([]string{"a view"}, 10_000),
		"one word":       strings.Repeat("a", 200_000),
		"nothing to see": strings.Repeat("\u202e", 1_000),
	} {
		for _, unknown := range []template.UnknownPolicy{template.UnknownToOther, template.UnknownRefused} {
			payload, err := json.Marshal(map[string]any{"city": "Porto", "nights": 2, "other": other})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := form(t, stay(t), template.FormOptions{Unknown: unknown}).Check(payload); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// SDSI 6.2.3: a withdrawn key is accepted, with a warning; a deprecated one, too.
func TestCheckWarns(t *testing.T) {
	t.Parallel()
	f := form(t, stay(t), template.FormOptions{Unknown: template.UnknownRefused, Withdrawn: []template.Key{
		{Name: "pets", Type: template.Integer, Required: true, Default: json.RawMessage("1"), Description: "Pets."},
		{Name: "city", Type: template.Integer, Description: "Not this one."},
	}})
	got, err := f.Check(json.RawMessage(`{"city":"Porto","nights":2,"pets":1,"late_arrival":false}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"city":"Porto","nights":2,"board":"breakfast","lateArrival":false,"pets":1}`; string(got.Values) != want {
		t.Errorf("%s, want %s", got.Values, want)
	}
	if len(got.Warnings) != 2 || !strings.Contains(got.Warnings[0], "late_arrival is deprecated") || !strings.Contains(got.Warnings[1], "pets is withdrawn") {
		t.Errorf("%q", got.Warnings)
	}
	if got, err := f.Check(json.RawMessage(`{"city":"Porto","nights":2}`)); err != nil || strings.Contains(string(got.Values), "pets") {
		t.Errorf("a withdrawn key has a default or is required: %v", err)
	}
	if _, err := f.Check(json.RawMessage(`{"city":"Porto","nights":2,"pets":"two"}`)); err == nil {
		t.Error("a withdrawn key has any type")
	}
}

func TestParsePayload(t *testing.T) {
	t.Parallel()
	got, err := template.ParsePayload([]byte(`{"schema_id": "stay_v1", "payload": {"city": "Porto"}, "trace": 1}`))
	if err != nil || got.SchemaID != "stay_v1" || string(got.Payload) != `{"city": "Porto"}` {
		t.Errorf("%+v, %v", got, err)
	}
	for name, raw := range map[string]string{
		"no schema_id": `{"payload": {}}`, "no payload": `{"schema_id": "a"}`, "null": `{"schema_id": "a", "payload": null}`, "other case": `{"schema_id": "a", "payload": {}, "Payload": {}}`,
		"schema_id of spaces": `{"schema_id": " ", "payload": {}}`, "twice": `{"schema_id": "a", "payload": {}, "payload": {}}`, "array": `[]`, "empty": ``,
		"too large": `{"schema_id": "a", "payload": {"a": "` + strings.Repeat("x", template.MaxPayload) + `"}}`,
	} {
		if _, err := template.ParsePayload([]byte(raw)); err == nil {
			t.Errorf("%s is accepted", name)
		} else {
			problemsOf(t, err)
		}
	}
}

package template_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// tram is a template with every kind of member.
const tram = `{
  "schema_id": "tram_ticket_v1", "scenario": "tram_ticket", "language": "en", "description": "Buy a ticket for the tram",
  "keys": [
    {"key_name": "stop_from", "key_type": "string", "required": true, "default_value": null, "semantic_description": "Where the ride begins. Example: 'from the harbour' -> 'Harbour'.",
     "semantic_descriptions": {"de": "Wo die Fahrt beginnt. Beispiel: 'vom Hafen' -> 'Harbour'."}},
    {"key_name": "zone_count", "key_type": "integer", "required": true, "semantic_description": "How many zones. Range: 1-6.", "value_schema": {"minimum": 1, "maximum": 6}},
    {"key_name": "fare", "key_type": "string", "required": false, "default_value": "adult", "semantic_description": "Acceptable values: adult, child.", "value_schema": {"enum": ["adult", "child"]}},
    {"key_name": "bike", "key_type": "boolean", "required": false, "semantic_description": "Whether a bicycle comes along.", "deprecated": true},
    {"key_name": "other", "key_type": "string", "required": false, "semantic_description": "What fits no key."}
  ],
  "response_schema": {"type": "object", "required": ["ticket"], "properties": {"ticket": {"type": "string"}}}
}`

func parse(t testing.TB, raw string) *template.Template {
	t.Helper()
	got, err := template.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRecognize(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"method":"get_schema_template","params":{"scenario":"x"}}`: `sdsi.schema.get {"scenario":"x"}`,
		`{"schema_id":"a","payload":{"b":1}}`:                        `sdsi.exchange {"schema_id":"a","payload":{"b":1}}`,
		`{"text":"{\"schema_id\":\"a\",\"payload\":{}}"}`:            `sdsi.exchange {"schema_id":"a","payload":{}}`,
		`{"method":"get_schema_template"}`:                           `sdsi.schema.get {}`,
		`{"method":"get_schema_template","params":[]}`:               `sdsi.schema.get []`,
		`{"schema_id":"a","payload":"x","more":1}`:                   "", `{"schema_id":"a","more":1}`: "",
		// Meant as an exchange: ParsePayload reports what is wrong.
		`{"schema_id":"a"}`:                             `sdsi.exchange {"schema_id":"a"}`,
		`{"schema_id":1,"payload":{}}`:                  `sdsi.exchange {"schema_id":1,"payload":{}}`,
		`{"schema_id":"a","payload":"x"}`:               `sdsi.exchange {"schema_id":"a","payload":"x"}`,
		`{"schema_id":"a","payload":[],"fragments":{}}`: `sdsi.exchange {"schema_id":"a","payload":[],"fragments":{}}`,
		`{"text":"what is a schema_id?"}`:               "", `{}`: "", `[`: "",
	} {
		r, ok := template.Recognize(json.RawMessage(raw))
		got := ""
		if ok {
			got = r.Intent + " " + string(r.Payload)
		}
		if got != want {
			t.Errorf("%s: %q", raw, got)
		}
	}
}

func TestAGetResultThereAndBack(t *testing.T) {
	t.Parallel()
	in, _ := parse(t, tram).In("de")
	for _, r := range []template.GetResult{
		{Template: *in, Hash: "h"}, {Template: *in, Hash: "h", Patches: []template.Patch{patchOf(seat())}},
		{Template: template.Template{SchemaID: "a", Scenario: "b"}, Hash: "h", NotModified: true},
	} {
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := template.ParseGetResult(raw)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := json.Marshal(got)
		if string(again) != string(raw) {
			t.Errorf("%s\n%s", raw, again)
		}
	}
	for _, raw := range []string{`{}`, `{"schema_id":"a","scenario":"b","hash":"h","keys":[{}]}`, `{"schema_id":"a","scenario":"b","keys":[],"hash":"h","patches":[{}]}`} {
		if _, err := template.ParseGetResult([]byte(raw)); err == nil {
			t.Errorf("%s is accepted", raw)
		}
	}
}

// If patches conflict, they are applied one by one, so their number is bounded: an untrusted agent
// could send thousands.
func TestAGetResultHasNotTooManyPatches(t *testing.T) {
	t.Parallel()
	for n, taken := range map[int]bool{template.MaxPatches: true, template.MaxPatches + 1: false} {
		r := template.GetResult{Template: *parse(t, tram), Hash: "h"}
		for range n {
			r.Patches = append(r.Patches, patchOf(seat()))
		}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := template.ParseGetResult(raw); (err == nil) != taken {
			t.Errorf("%d patches: %v", n, err)
		}
	}
}

var patched = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func patchOf(keys ...template.Key) template.Patch {
	return template.Patch{PatchID: "p1", ParentSchemaID: "tram_ticket_v1", Timestamp: patched, Expires: patched.Add(time.Hour), NewKeys: keys}
}

func seat() template.Key {
	return template.Key{Name: "seat", Type: template.String, Description: "A seat.", Experimental: true}
}

// FuzzWire parses messages of other agents.
func FuzzWire(f *testing.F) {
	f.Add([]byte(`{"text":"{\"method\":\"get_schema_template\",\"params\":{}}"}`))
	f.Add([]byte(`{"schema_id":"a","scenario":"b","hash":"h","not_modified":true}`))
	f.Add([]byte(tram))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r, ok := template.Recognize(raw); ok && !json.Valid(r.Payload) {
			t.Fatalf("%s: %s", raw, r.Payload)
		}
		got, err := template.ParseGetResult(raw)
		if err != nil {
			return
		}
		out, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := template.ParseGetResult(out); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	})
}

package template_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/intents/schema"
	"github.com/aeemesh/aeemesh/intents/template"
)

// versions returns two versions of a template that differ in one key.
func versions(t testing.TB, old, now string) (a, b *template.Template) {
	t.Helper()
	return parse(t, `{"schema_id":"v1","scenario":"s","keys":[`+old+`]}`), parse(t, `{"schema_id":"v2","scenario":"s","keys":[`+now+`]}`)
}

func key(rest string) string {
	return `{"key_name":"a","semantic_description":"A.","required":false,` + rest + `}`
}

// A change is breaking if the new version refuses payloads of clients of the old one, and only
// then.
func TestCompareKnowsWhatBreaks(t *testing.T) {
	t.Parallel()
	of := func(kind, values string) string { return key(`"key_type":"` + kind + `","value_schema":` + values) }
	for _, c := range []struct {
		name, old, now string
		breaks         bool
	}{
		{"a narrower range", of("integer", `{"minimum":1,"maximum":9}`), of("integer", `{"minimum":1,"maximum":3}`), true},
		{"a wider range", of("integer", `{"minimum":1,"maximum":9}`), of("integer", `{"minimum":0,"maximum":10}`), false},
		{"a bound that is out", of("integer", `{"minimum":1}`), of("integer", `{"exclusiveMinimum":1}`), true},
		{"a bound that is in", of("integer", `{"exclusiveMinimum":1}`), of("integer", `{"minimum":1}`), false},
		{"a bound is gone", of("integer", `{"minimum":1}`), key(`"key_type":"integer"`), false},
		{"values are listed", key(`"key_type":"string"`), of("string", `{"enum":["q"]}`), true},
		{"one value more", of("string", `{"enum":["p"]}`), of("string", `{"enum":["q","p"]}`), false},
		{"one value less", of("string", `{"enum":["p","q"]}`), of("string", `{"enum":["p"]}`), true},
		{"a list becomes a length", of("string", `{"enum":["p","qq"]}`), of("string", `{"maxLength":2}`), false},
		{"a list becomes a length that is too short", of("string", `{"enum":["p","qq"]}`), of("string", `{"maxLength":1}`), true},
		{"shorter", of("string", `{"maxLength":9}`), of("string", `{"maxLength":8}`), true},
		{"another pattern", of("string", `{"pattern":"^a"}`), of("string", `{"pattern":"^b"}`), true},
		{"a longer list", of("array", `{"items":{"type":"string"},"maxItems":2}`), of("array", `{"items":{"type":"string"},"maxItems":3}`), false},
		{"other items", of("array", `{"items":{"type":"string"}}`), of("array", `{"items":{"type":"integer"}}`), true},
		{"a first item of its own", of("array", `{"prefixItems":[{"type":"integer"}],"items":{"type":"string"}}`), of("array", `{"items":{"type":"string"}}`), true},
		{"a property more", of("object", `{"properties":{"x":{}},"additionalProperties":false}`), of("object", `{"properties":{"x":{},"y":{}},"additionalProperties":false}`), false},
		{"a property less", of("object", `{"properties":{"x":{},"y":{}},"additionalProperties":false}`), of("object", `{"properties":{"x":{}},"additionalProperties":false}`), true},
		{"a property is required", of("object", `{"required":["x"]}`), of("object", `{"required":["x","y"]}`), true},
		{"names of a pattern are refused", of("object", `{"patternProperties":{"^p":{}},"additionalProperties":false}`), of("object", `{"additionalProperties":false}`), true},
		{"a name of a pattern has a type", of("object", `{"patternProperties":{"^x":{"type":"integer"}},"additionalProperties":{"type":"string"}}`), of("object", `{"properties":{"x":{"type":"string"}}}`), true},
		{"a property less, unevaluated ones are refused", of("object", `{"properties":{"x":{},"y":{}},"unevaluatedProperties":false}`), of("object", `{"properties":{"x":{}},"unevaluatedProperties":false}`), true},
		{"integer to number", key(`"key_type":"integer"`), key(`"key_type":"number"`), false},
		{"number to integer", key(`"key_type":"number"`), key(`"key_type":"integer"`), true},
		{"number to integer, with a type beside it", of("number", `{"type":"number"}`), of("integer", `{"type":"number"}`), true},
		{"integer to number, with a type beside it", of("integer", `{"type":"number"}`), of("number", `{"type":"number"}`), false},
		{"a number that was an integer", of("number", `{"type":["integer","null"]}`), key(`"key_type":"integer"`), false},
		{"string to boolean", key(`"key_type":"string"`), key(`"key_type":"boolean"`), true},
		{"a default", key(`"key_type":"string"`), key(`"key_type":"string","default_value":"x"`), false},
		{"a property", key(`"key_type":"string"`), key(`"key_type":"string","property":"aA"`), false},
		{"other takes both forms", `{"key_name":"other","key_type":"string","required":false,"semantic_description":"O."}`, `{"key_name":"other","key_type":"array","required":false,"semantic_description":"O."}`, false},
		{"removed", key(`"key_type":"string"`), strings.Replace(key(`"key_type":"string"`), `"a"`, `"b"`, 1), true},
		{"required", key(`"key_type":"string"`), strings.Replace(key(`"key_type":"string"`), "false", "true", 1), true},
		{"optional", strings.Replace(key(`"key_type":"string"`), "false", "true", 1), key(`"key_type":"string"`), false},
		{"an optional key more", key(`"key_type":"string"`), key(`"key_type":"string"`) + "," + strings.Replace(key(`"key_type":"string"`), `"a"`, `"b"`, 1), false},
		{"a required key more", key(`"key_type":"string"`), key(`"key_type":"string"`) + "," + strings.NewReplacer(`"a"`, `"b"`, "false", "true").Replace(key(`"key_type":"string"`)), true},
	} {
		changes := template.Compare(versions(t, c.old, c.now))
		if len(changes) == 0 || slices.ContainsFunc(changes, func(c template.Change) bool { return c.Breaking }) != c.breaks {
			t.Errorf("%s: %+v, breaking: %v", c.name, changes, c.breaks)
		}
	}
}

// The differences of a key always have the same order.
func TestCompareHasOneOrder(t *testing.T) {
	t.Parallel()
	old, now := versions(t, key(`"key_type":"string","experimental":true`), key(`"key_type":"string","deprecated":true`))
	want := []template.Change{{Key: "a", What: "not experimental any more"}, {Key: "a", What: "deprecated now"}}
	for range 50 {
		if got := template.Compare(old, now); !slices.Equal(got, want) {
			t.Fatalf("%+v", got)
		}
	}
}

// Beside keys.
func TestCompareShowsTheTemplateItself(t *testing.T) {
	t.Parallel()
	old := parse(t, tram)
	for edit, want := range map[[2]string]template.Change{
		{`"tram_ticket"`, `"bus_ticket"`}:                            {What: "scenario bus_ticket, was tram_ticket", Breaking: true},
		{`"tram_ticket_v1"`, `"tram_ticket_v1"`}:                     {},
		{`"Where`, `"From where`}:                                    {What: "the schema_id tram_ticket_v1 has another content: a version never changes, so NEW needs an id of its own", Breaking: true},
		{`"required": ["ticket"]`, `"required": ["ticket", "gate"]`}: {What: "another response_schema"},
		{`"required": ["ticket"], "properties"`, `"properties"`}:     {What: "another response_schema", Breaking: true},
	} {
		raw := strings.Replace(tram, edit[0], edit[1], 1)
		if !strings.Contains(tram, edit[0]) {
			t.Fatal(edit)
		}
		if strings.Contains(want.What, "response_schema") || strings.Contains(want.What, "scenario") {
			raw = strings.Replace(raw, "tram_ticket_v1", "tram_ticket_v2", 1)
		}
		got := template.Compare(old, parse(t, raw))
		if want.What == "" && len(got) > 0 || want.What != "" && !slices.Contains(got, want) {
			t.Errorf("%s: %+v, want %+v", edit[1], got, want)
		}
	}
}

// A part of a response schema is not compared by itself if it has another meaning in its context.
func TestCompareKnowsReferences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		old, now string
		breaks   bool
	}{
		{`{"required":["a"],"properties":{"x":{"properties":{"y":{"$ref":"#"}}}}}`, `{"required":["a"],"properties":{"x":{"const":{"y":{}}}}}`, true},
		{`{"required":["a"],"properties":{"x":{"not":{"$ref":"#"}}}}`, `{"required":["a","b"],"properties":{"x":{"not":{"$ref":"#"}}}}`, true},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"x":{"minimum":5}},"definitions":{"d":{}}}`,
			`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"x":{"$ref":"#/definitions/d","minimum":5}},"definitions":{"d":{}}}`, true},
		{`{"properties":{"x":{"$ref":"#/$defs/d"}},"$defs":{"d":{"type":"string"}}}`, `{"required":["x"],"properties":{"x":{"$ref":"#/$defs/d"}},"$defs":{"d":{"type":"string"}}}`, false},
		{`{"properties":{"x":{"$ref":"#/$defs/d"}},"$defs":{"d":{"type":"string"}}}`, `{"properties":{"x":{"$ref":"#/$defs/d"}},"$defs":{"d":{"type":"integer"}}}`, true},
		{`{"properties":{"x":{"maximum":9007199254740991}}}`, `{"properties":{"x":{"maximum":9007199254740992}}}`, true},
	} {
		read := func(id, responses string) *template.Template {
			return parse(t, `{"schema_id":"`+id+`","scenario":"s","keys":[],"response_schema":`+responses+`}`)
		}
		got := template.Compare(read("v1", c.old), read("v2", c.now))
		if len(got) != 1 || got[0].Breaking != c.breaks {
			t.Errorf("%s, was %s: %+v", c.now, c.old, got)
		}
	}
}

// If Compare reports no breaking change, no valid value becomes invalid.
func FuzzCompare(f *testing.F) {
	f.Add(`{"minimum":1,"maximum":9}`, `{"minimum":0}`, `5`)
	f.Add(`{"type":"array","items":{"type":"string"},"prefixItems":[{"type":"integer"}]}`, `{"type":"array","items":{"type":"string"}}`, `[1,"x"]`)
	f.Add(`{"type":"object","properties":{"x":{"type":"integer"},"y":true},"additionalProperties":false}`, `{"properties":{"x":{"type":"number"}},"required":[]}`, `{"x":1,"y":2}`)
	f.Add(`{"enum":["a",1]}`, `{"type":["string","integer"]}`, `"a"`)
	f.Add(`{"required":["a"],"properties":{"x":{"const":{"y":{}}}}}`, `{"required":["a"],"properties":{"x":{"properties":{"y":{"$ref":"#"}}}}}`, `{"a":1,"x":{"y":{}}}`)
	f.Add(`{"contains":{"type":"string"},"minContains":0}`, `{"contains":{"type":"string"}}`, `[]`)
	f.Fuzz(func(t *testing.T, old, now, value string) {
		read := func(id, schema string) *template.Template {
			got, err := template.Parse(fmt.Appendf(nil, `{"schema_id":%q,"scenario":"s","keys":[],"response_schema":%s}`, id, schema))
			if err != nil {
				t.Skip()
			}
			return got
		}
		a, b := read("v1", now), read("v2", old) // a response breaks nothing if it is narrower
		for _, c := range template.Compare(a, b) {
			if c.Breaking {
				return
			}
		}
		narrow, err := schema.Compile([]byte(old))
		if err != nil {
			t.Skip()
		}
		wide, err := schema.Compile([]byte(now))
		if err != nil || !json.Valid([]byte(value)) {
			t.Skip()
		}
		if narrow.Validate([]byte(value)) == nil && wide.Validate([]byte(value)) != nil {
			t.Errorf("%s is said to be within %s, and %s is not", old, now, value)
		}
	})
}

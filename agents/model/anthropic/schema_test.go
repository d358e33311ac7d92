package anthropic

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestSchemasAreBroughtIntoTheSubset(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"integer","minimum":0,"multipleOf":2}`:          `{"type":"integer","description":"{minimum: 0, multipleOf: 2}"}`,
		`{"type":"integer","minimum":3,"description":"few"}`:     `{"type":"integer","description":"few\n\n{minimum: 3}"}`,
		`{"type":"string","format":"phone"}`:                     `{"type":"string","description":"{format: phone}"}`,
		`{"type":"string","format":"date","pattern":"^2"}`:       `{"type":"string","format":"date","pattern":"^2"}`,
		`{"type":"string","default":"a","examples":["a","<b>"]}`: `{"type":"string","description":"{default: a, examples: [\"a\",\"<b>\"]}"}`,
		`{"type":"object"}`: `{"type":"object","properties":{},"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"type":"object"}},"required":["a"]}`:                                                 `{"type":"object","properties":{"a":{"type":"object","properties":{},"additionalProperties":false}},"required":["a"],"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{},"b":{"minLength":1},"c":false}}`:                                                   `{"type":"object","properties":{"a":true,"b":true,"c":false},"additionalProperties":false}`,
		`{"type":"object","additionalProperties":{"type":"string","minLength":1}}`:                                                `{"type":"object","additionalProperties":{"type":"string","description":"{minLength: 1}"}}`,
		`{"type":"object","additionalProperties":true}`:                                                                           `{"type":"object","additionalProperties":true}`,
		`{"type":"array","minItems":1,"items":{"type":"string","maxLength":2}}`:                                                   `{"type":"array","minItems":1,"items":{"type":"string","description":"{maxLength: 2}"}}`,
		`{"type":"array","minItems":2,"uniqueItems":true}`:                                                                        `{"type":"array","description":"{minItems: 2, uniqueItems: true}"}`,
		`{"oneOf":[{"type":"string"},{"type":"null"}]}`:                                                                           `{"anyOf":[{"type":"string"},{"type":"null"}]}`,
		`{"anyOf":[{"type":"string"},{"minLength":1},{"title":"x"},true],"oneOf":[{}]}`:                                           `{"anyOf":[{"type":"string"},true]}`,
		`{"allOf":[{"type":"string"},{"minLength":1}]}`:                                                                           `{"allOf":[{"type":"string"},true]}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/a","title":"x"}},"$defs":{"a":{"type":"string","not":{"const":1}}}}`: `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string","description":"{not: {\"const\":1}}"}},"additionalProperties":false}`,
		`{"enum":[1,"a"],"x-order":3,"readOnly":false,"title":"","required":[],"default":null}`:                                   `{"enum":[1,"a"]}`,
		// Nothing is left to enforce, or there are several types, which the subset does not
		// support.
		`{"const":1}`:                 ``,
		`{}`:                          ``,
		`{"minProperties":1}`:         ``,
		`{"anyOf":[{"minLength":1}]}`: ``,
		`{"type":["object","null"]}`:  ``,
		`{"type":"array","items":[{"type":"string"}]}`:    ``,
		`{"type":"object","properties":{"a":null}}`:       ``,
		`{"type":"object","properties":[]}`:               `{"type":"object","properties":{},"additionalProperties":false}`,
		`{"type":"string","description":1,"minLength":1}`: ``,
		`[]`: ``,
	} {
		got := subset(json.RawMessage(schema))
		var g, w any
		if want != "" && (json.Unmarshal(got, &g) != nil || json.Unmarshal([]byte(want), &w) != nil) || want == "" && got != nil || !reflect.DeepEqual(g, w) {
			t.Errorf("%s\n got %s\nwant %s", schema, got, want)
		}
	}
}

func FuzzSubset(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"array","items":{"anyOf":[{"type":"string","maxLength":1},{}]}}},"$defs":{"b":true}}`)
	f.Add(`{"oneOf":[{"const":null},{"enum":[]}],"allOf":[{"$ref":"#"}],"description":7}`)
	f.Fuzz(func(t *testing.T, schema string) {
		got := subset(json.RawMessage(schema))
		if got == nil {
			return
		}
		if again := subset(got); again == nil {
			t.Errorf("%s became %s, and that nothing", schema, got)
		}
	})
}

package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"pgregory.net/rapid"
)

// The library that compiles our schemas can validate, too. It is the oracle here, for random
// schemas and documents with the same few names and values, so that they often match.

var (
	someNames  = rapid.SampledFrom([]string{"a", "b", "c", "ab", "x/y", "~", "é", ""})
	someValues = rapid.SampledFrom([]string{
		"null", "true", "false", "0", "1", "2", "-1", "1.0", "1.5", "1e2", "100", "12345678901234567890", "12345678901234567891", "0.1", "-0",
		`""`, `"a"`, `"b"`, `"ab"`, `"\u00e9"`, `"é"`, `"aaa"`, `"2025-12-14T03:45:12Z"`, "[]", "{}", "[1]", `{"a":1}`, `[1,1.0]`, `["a","b"]`,
	})
	somePatterns = rapid.SampledFrom([]string{"^a", "b$", "^[a-c]+$", ".", "é", "^$"})
	someTypes    = rapid.SampledFrom([]string{`"null"`, `"boolean"`, `"number"`, `"integer"`, `"string"`, `"array"`, `"object"`, `["integer","string"]`, `["object","array"]`})
)

func drawDocument(t *rapid.T, depth int) string {
	switch n := rapid.IntRange(0, 5).Draw(t, "document"); {
	case n < 3 || depth == 0:
		return someValues.Draw(t, "value")
	case n == 3:
		var items []string
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			items = append(items, drawDocument(t, depth-1))
		}
		return "[" + strings.Join(items, ",") + "]"
	default:
		var members []string
		for _, name := range rapid.SliceOfNDistinct(someNames, 0, 4, rapid.ID).Draw(t, "names") {
			members = append(members, quoteJSON(name)+":"+drawDocument(t, depth-1))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
}

func quoteJSON(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}

func drawSchema(t *rapid.T, depth int, draft7 bool) string {
	if depth == 0 || rapid.IntRange(0, 7).Draw(t, "leaf") == 0 {
		return rapid.SampledFrom([]string{"true", "false", "{}", `{"type":"integer"}`, `{"type":"string"}`, `{"minimum":1}`, `{"$ref":"#/definitions/d"}`, `{"enum":["a",1,null]}`}).Draw(t, "leaf schema")
	}
	sub := func() string { return drawSchema(t, depth-1, draft7) }
	list := func() string {
		var all []string
		for range rapid.IntRange(1, 3).Draw(t, "schemas") {
			all = append(all, sub())
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	object := func(names *rapid.Generator[string], one func() string) string {
		var all []string
		for _, name := range rapid.SliceOfNDistinct(names, 0, 3, rapid.ID).Draw(t, "members") {
			all = append(all, quoteJSON(name)+":"+one())
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	names := func() string {
		text, _ := json.Marshal(rapid.SliceOfNDistinct(someNames, 0, 3, rapid.ID).Draw(t, "required"))
		return string(text)
	}
	count := func() string { return fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "count")) }
	number := func() string {
		return rapid.SampledFrom([]string{"-1", "0", "1", "1.5", "2", "1e2", "12345678901234567890"}).Draw(t, "number")
	}
	keywords := map[string]func() string{
		"type": func() string { return someTypes.Draw(t, "type") }, "const": func() string { return someValues.Draw(t, "const") },
		"enum":       func() string { return "[" + someValues.Draw(t, "enum") + "," + `"zzz"` + "]" },
		"properties": func() string { return object(someNames, sub) }, "patternProperties": func() string { return object(somePatterns, sub) },
		"additionalProperties": sub, "propertyNames": sub, "required": names, "minProperties": count, "maxProperties": count,
		"dependencies": func() string { return object(someNames, sub) }, "dependentRequired": func() string { return object(someNames, names) },
		"dependentSchemas": func() string { return object(someNames, sub) },
		"minItems":         count, "maxItems": count, "contains": sub, "minContains": count, "maxContains": count,
		"uniqueItems": func() string { return "true" }, "unevaluatedProperties": sub, "unevaluatedItems": sub,
		"minLength": count, "maxLength": count, "pattern": func() string { return quoteJSON(somePatterns.Draw(t, "pattern")) },
		"format":  func() string { return `"date-time"` },
		"minimum": number, "maximum": number, "exclusiveMinimum": number, "exclusiveMaximum": number,
		"multipleOf": func() string {
			return rapid.SampledFrom([]string{"1", "0.1", "2", "1.5"}).Draw(t, "step")
		},
		"not": sub, "if": sub, "then": sub, "else": sub, "allOf": list, "anyOf": list, "oneOf": list,
		"items": sub,
	}
	if draft7 {
		keywords["items"] = func() string {
			if rapid.Bool().Draw(t, "one for all") {
				return sub()
			}
			return list()
		}
		keywords["additionalItems"] = sub
	} else {
		keywords["prefixItems"] = list
	}
	var members []string
	for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(keywords))), 1, 5, rapid.ID).Draw(t, "keywords") {
		members = append(members, quoteJSON(k)+":"+keywords[k]())
	}
	return "{" + strings.Join(members, ",") + "}"
}

func TestValidatesAsTheCompilersOwnValidator(t *testing.T) {
	t.Parallel()
	compiled, valid, invalid := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		draft := rapid.SampledFrom([]string{"https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema", "http://json-schema.org/draft-07/schema#"}).Draw(rt, "draft")
		schema := fmt.Sprintf(`{"$schema":%q,"definitions":{"d":%s},"allOf":[%s]}`, draft, drawSchema(rt, 1, !strings.Contains(draft, "2020")), drawSchema(rt, 3, !strings.Contains(draft, "2020")))
		ours, err := Compile([]byte(schema))
		if err != nil {
			var refused *Error
			if !errors.As(err, &refused) {
				rt.Fatalf("%s: %v", schema, err)
			}
			return // mostly a loop of $ref
		}
		compiled++
		theirs, err := compile([]byte(schema))
		if err != nil {
			rt.Fatal(err)
		}
		for range 8 {
			doc := drawDocument(rt, 3)
			if verdict := oracle(rt, theirs, doc); (ours.Validate([]byte(doc)) == nil) != verdict {
				rt.Fatalf("schema %s\ndocument %s\nours: %v\ntheirs say valid: %v", schema, doc, ours.Validate([]byte(doc)), verdict)
			} else if verdict {
				valid++
			} else {
				invalid++
			}
		}
	})
	if compiled == 0 || valid == 0 || invalid == 0 {
		t.Errorf("compiled %d, valid %d, invalid %d: the generator has gone blind", compiled, valid, invalid)
	}
}

func oracle(t interface{ Fatalf(string, ...any) }, s *jsonschema.Schema, doc string) bool {
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return s.Validate(v) == nil
}

// The unevaluated keywords see what the subschemas that accepted the value have
// evaluated. Random schemas seldom get that far.
func TestUnevaluatedSeesAcceptingSubschemas(t *testing.T) {
	t.Parallel()
	const draft2019 = `"$schema":"https://json-schema.org/draft/2019-09/schema",`
	objects := []string{`{}`, `{"a":1}`, `{"a":"x"}`, `{"b":1}`, `{"a":1,"b":1}`, `{"a":1,"b":"x"}`, `{"a":1,"b":1,"c":1}`, `{"a":"x","b":1}`}
	arrays := []string{`[]`, `[1]`, `["x"]`, `[1,1]`, `[1,"x"]`, `["x",1]`, `["x","x"]`, `[1,1,1]`, `[1,"x",true]`}
	for schema, docs := range map[string][]string{
		`"allOf":[{"properties":{"a":{"type":"integer"}}}],"unevaluatedProperties":false`:                                                                                   objects,
		`"anyOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}],"unevaluatedProperties":false`:                         objects,
		`"oneOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"string"}}}],"unevaluatedProperties":false`:                           objects,
		`"if":{"properties":{"a":{"type":"integer"}},"required":["a"]},"then":{"properties":{"b":{}}},"else":{"patternProperties":{"^a":{}}},"unevaluatedProperties":false`: objects,
		`"$ref":"#/$defs/x","$defs":{"x":{"properties":{"a":{}},"additionalProperties":{"type":"integer"}}},"unevaluatedProperties":false`:                                  objects,
		`"dependentSchemas":{"a":{"properties":{"b":{}}}},"properties":{"a":{}},"unevaluatedProperties":{"type":"string"}`:                                                  objects,
		`"not":{"not":{"properties":{"a":{}}}},"unevaluatedProperties":false`:                                                                                               objects,
		`"allOf":[{"unevaluatedProperties":true}],"unevaluatedProperties":false`:                                                                                            objects,
		`"contains":{"type":"integer"},"unevaluatedItems":false`:                                                                                                            arrays,
		`"allOf":[{"prefixItems":[{"type":"integer"}]}],"unevaluatedItems":false`:                                                                                           arrays,
		`"allOf":[{"prefixItems":[{}],"items":{"type":"integer"}}],"unevaluatedItems":false`:                                                                                arrays,
		`"anyOf":[{"prefixItems":[{"type":"integer"}]},{"prefixItems":[true,{"type":"integer"}]}],"unevaluatedItems":{"type":"boolean"}`:                                    arrays,
		draft2019 + `"contains":{"type":"integer"},"unevaluatedItems":false`:                                                                                                arrays,
		draft2019 + `"allOf":[{"items":[{}],"additionalItems":{"type":"integer"}}],"unevaluatedItems":false`:                                                                arrays,
	} {
		agrees(t, "{"+schema+"}", docs)
	}
}

// A part that fits does not make up for an earlier one that does not, inside an alternative.
func TestALaterPartThatFitsHidesNoProblem(t *testing.T) {
	t.Parallel()
	for schema, doc := range map[string]string{
		`"items":{"type":"integer"}`:                             `["x",1]`,
		`"unevaluatedItems":{"type":"integer"}`:                  `["x",1]`,
		`"allOf":[{"maxItems":1},{}]`:                            `[1,1]`,
		`"maxItems":1,"if":true,"then":{}`:                       `[1,1]`,
		`"allOf":[{"maxItems":1}],"if":true,"then":{}`:           `[1,1]`,
		`"dependentSchemas":{"a":{"maxProperties":1},"b":{}}`:    `{"a":1,"b":1}`,
		`"properties":{"a":{"type":"integer"}}`:                  `{"a":"x","b":1}`,
		`"propertyNames":{"maxLength":1},"properties":{"bb":{}}`: `{"bb":1,"a":1}`,
	} {
		agrees(t, `{"anyOf":[{`+schema+`},{"type":"string"}]}`, []string{doc})
	}
}

// agrees compares the verdicts about documents with the library's.
func agrees(t *testing.T, schema string, docs []string) {
	t.Helper()
	ours := compiled(t, schema)
	theirs, err := compile([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range docs {
		want := oracle(t, theirs, doc)
		if err := ours.Validate([]byte(doc)); (err == nil) != want {
			t.Errorf("schema %s document %s: %v, the library says valid: %v", schema, doc, err, want)
		}
	}
}

// Examine reports each problem with a whole pointer and the place of its keyword, also behind a
// $ref. It ignores formats and the limits of numbers.
func TestExamine(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"properties":{"a/b":{"$ref":"#/$defs/x%20y~1z"},"when":{"format":"date"},"n":{"type":"integer"}},
		"required":["r1","r2"],"additionalProperties":false,"$defs":{"x y/z":{"items":{"minLength":2}}}}`)
	long := strings.Repeat("n", 3*maxPointer)
	doc := `{"a/b":["ab","c"],"when":"never","n":1` + strings.Repeat("0", 500) + `,"` + long + `":0}`
	want := []Problem{
		{Pointer: "", Keyword: "required", Message: `lacks the property "r1"`},
		{Pointer: "", Keyword: "required", Message: `lacks the property "r2"`},
		{Pointer: "/a~1b/1", Keyword: "minLength", Message: "has 1 characters, at least 2 are required", Place: "/$defs/x y~1z/items"},
		{Pointer: "/" + long, Keyword: "additionalProperties", Message: "is no property that is allowed here"},
	}
	if got, truncated := s.Examine([]byte(doc), 4); !slices.Equal(got, want) || truncated {
		t.Errorf("got %v, truncated %v", got, truncated)
	}
	if got, truncated := s.Examine([]byte(doc), 3); !slices.Equal(got, want[:3]) || !truncated {
		t.Errorf("got %v, truncated %v", got, truncated)
	}
	if err := s.Validate([]byte(doc)); err == nil || !strings.Contains(err.Error(), "number of more than") {
		t.Errorf("Validate after Examine: %v", err)
	}
}

// Long pointers count as work; the problems found within the limit are reported.
func TestExamineBoundsItsPointers(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"additionalProperties":{"items":{"type":"string"}}}`)
	name := strings.Repeat("n", 100_000)
	doc := `{"` + name + `":[0` + strings.Repeat(",0", 5_000) + `]}`
	got, truncated := s.Examine([]byte(doc), 10_000)
	if len(got) == 0 || len(got) > maxWork/len(name) || !truncated {
		t.Errorf("%d problems, truncated %v", len(got), truncated)
	}
}

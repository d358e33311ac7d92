package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refused compiles a schema that must not compile, and returns its problems.
func refused(t *testing.T, schema string) []Problem {
	t.Helper()
	_, err := Compile(json.RawMessage(schema))
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%.200s: compiled, or failed otherwise: %v", schema, err)
	}
	if len(e.Problems) == 0 || len(e.Problems) > MaxProblems || len(e.Error()) > 2_000 {
		t.Errorf("%d problems, message of %d bytes", len(e.Problems), len(e.Error()))
	}
	return e.Problems
}

func compiled(t testing.TB, schema string) *Schema {
	t.Helper()
	s, err := Compile(json.RawMessage(schema))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func invalid(t *testing.T, s *Schema, doc string) *ValidationError {
	t.Helper()
	var e *ValidationError
	if err := s.Validate(json.RawMessage(doc)); !errors.As(err, &e) {
		t.Fatalf("%.200s: passed, or failed otherwise: %v", doc, err)
	}
	return e
}

// The library on its own compiles the second of these, and finds the loop only when it
// validates a document.
func TestEndlessReferencesAreRefused(t *testing.T) {
	t.Parallel()
	for name, schema := range map[string]string{
		"itself":             `{"$ref":"#"}`,
		"pair":               `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		"behind a property":  `{"$ref":"#/$defs/b","$defs":{"b":{"properties":{"p":{"$ref":"#/$defs/c"}},"if":{"$ref":"#/$defs/c"}},"c":{"$ref":"#/$defs/b"}}}`,
		"allOf":              `{"allOf":[{"anyOf":[{"not":{"$ref":"#"}}]}]}`,
		"dependent":          `{"dependentSchemas":{"a":{"$ref":"#"}}}`,
		"below an id":        `{"$id":"https://example.com/s","$ref":"#"}`,
		"reached by nothing": `{"$defs":{"a":{"properties":{"p":{"$ref":"#/$defs/x"}}},"x":{"$ref":"#/$defs/x"}},"properties":{"q":{"$ref":"#/$defs/a"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range refused(t, schema) {
				if strings.Contains(p.Message, "mem:") || strings.Contains(p.Message, "jsonschema") {
					t.Errorf("the message tells of the compiler: %s", p.Message)
				}
			}
		})
	}
}

func TestRecursionThroughMembersIsFine(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false}`)
	deep := strings.Repeat(`{"next":`, 900) + "{}" + strings.Repeat("}", 900)
	if err := s.Validate(json.RawMessage(deep)); err != nil {
		t.Error(err)
	}
	e := invalid(t, s, strings.Replace(deep, "{}", "1", 1))
	if p := e.Problems[0]; p.Keyword != "type" || !strings.HasSuffix(p.Pointer, "…") || len(p.Pointer) > maxPointer+3 {
		t.Errorf("problem %+v: want a type with a pointer that was cut", p)
	}
}

func TestNothingIsLoaded(t *testing.T) {
	t.Parallel()
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{
		"file://" + file, file, "s.json", server.URL + "/s.json", "urn:other", "https://json-schema.org/draft/2020-12/schema",
		"https://json-schema.org/draft/2020-12/meta/core", "s.json#/$defs/a",
	} {
		for _, form := range []string{`{"properties":{"a":{"$ref":%q}}}`, `{"$id":"https://example.org/base","$ref":%q}`, `{"$schema":%q}`, `{"$dynamicRef":%q}`} {
			if form == `{"$schema":%q}` && strings.HasSuffix(url, "/schema") {
				continue
			}
			for _, p := range refused(t, fmt.Sprintf(form, url)) {
				if strings.Contains(form, `"$ref"`) && !strings.Contains(p.Message, "never loaded from disk or network") {
					t.Errorf("%s in %s: the message does not say why: %s", url, form, p)
				}
			}
		}
	}
	if asked {
		t.Error("a schema reached for the network")
	}
	// Members that only look like references are not references.
	compiled(t, `{"properties":{"$ref":{"type":"string"}},"const":{"$ref":"file:///etc/passwd"},"examples":[{"$ref":"http://x"}]}`)
	// A schema may refer to its own name.
	s := compiled(t, `{"$id":"https://example.org/s","$ref":"https://example.org/s#/$defs/a","$defs":{"a":{"type":"object"}}}`)
	invalid(t, s, "1")
}

func TestHostileSchemasAreRefused(t *testing.T) {
	t.Parallel()
	many := func(n int, one string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = strings.ReplaceAll(one, "%d", fmt.Sprint(i))
		}
		return strings.Join(parts, ",")
	}
	for name, c := range map[string]struct{ schema, keyword string }{
		"too large":             {`{"description":"` + strings.Repeat("x", MaxBytes) + `"}`, "limit"},
		"too deep":              {strings.Repeat(`{"not":`, 100) + "{}" + strings.Repeat("}", 100), "limit"},
		"very deep":             {strings.Repeat(`[`, 200_000), "limit"},
		"too many values":       {`{"enum":[` + many(maxSchemaValues, "%d") + `]}`, "limit"},
		"too many subschemas":   {`{"properties":{` + many(maxSubschemas, `"p%d":{}`) + `}}`, "limit"},
		"long pattern":          {`{"pattern":"` + strings.Repeat("x", maxPatternLength+1) + `"}`, "pattern"},
		"large pattern":         {`{"pattern":"` + strings.Repeat("x{1000}", 50) + `"}`, "limit"},
		"large name pattern":    {`{"patternProperties":{"` + strings.Repeat("x{1000}", 50) + `":{}}}`, "limit"},
		"many large patterns":   {`{"allOf":[` + many(20, `{"pattern":"a%dx{1000}x{900}"}`) + `]}`, "limit"},
		"large classes":         {`{"pattern":"` + strings.Repeat(`\\pL`, 300) + `"}`, "limit"},
		"many patterns of none": {`{"allOf":[` + many(200, `{"pattern":"`+strings.Repeat(`\\pL`, 300)+`(%d"}`) + `]}`, "pattern"},
		"look-ahead":            {`{"pattern":"(?=a)b"}`, "pattern"},
		"back-reference":        {`{"pattern":"(a)\\1"}`, "pattern"},
		"huge number":           {`{"minimum":1e1000001}`, "number"},
		"long number":           {`{"minimum":` + strings.Repeat("9", 500) + `}`, "number"},
		"count beyond reason":   {`{"minLength":1e300}`, "minLength"},
		"fractional count":      {`{"maxItems":1.5}`, "maxItems"},
		"negative count":        {`{"maxItems":-1}`, "maxItems"},
		"no step":               {`{"multipleOf":0}`, "multipleOf"},
		"empty enum":            {`{"enum":[]}`, "enum"},
		"unknown type":          {`{"type":"float"}`, "type"},
		"no type":               {`{"type":[]}`, "type"},
		"typed wrongly":         {`{"required":"a"}`, "required"},
		"schema of wrong type":  {`{"properties":{"a":1}}`, "schema"},
		"no schema":             {`[]`, "schema"},
		"array of nothing":      {`{"allOf":[]}`, "allOf"},
		"duplicate name":        {`{"type":"object","type":"string"}`, "json"},
		"invalid UTF-8":         {"{\"title\":\"\xff\"}", "json"},
		"not JSON":              {`{`, "json"},
		"nothing":               {``, "json"},
		"two documents":         {`{} {}`, "json"},
		"other meta-schema":     {`{"$schema":"https://example.org/mine"}`, "$schema"},
		"draft 3":               {`{"$schema":"http://json-schema.org/draft-03/schema#"}`, "$schema"},
		"mixed drafts":          {`{"$defs":{"a":{"$schema":"http://json-schema.org/draft-07/schema#"}}}`, "$schema"},
		"nested id":             {`{"$defs":{"a":{"$id":"file:///etc/x"}}}`, "$id"},
		"dynamic reference":     {`{"$dynamicRef":"#a","$dynamicAnchor":"a"}`, "keyword"},
		"recursive reference":   {`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveRef":"#"}`, "keyword"},
		"library's own keyword": {`{"regexProperties":"x"}`, "keyword"},
		"vocabulary":            {`{"$vocabulary":{}}`, "keyword"},
		"dangling reference":    {`{"$ref":"#/$defs/none"}`, "$ref"},
		"reference to no schema": {
			`{"$ref":"#/required","required":["a"]}`, "$ref"},
		"dangling anchor": {`{"$ref":"#none"}`, "$ref"},
		"anchor twice":    {`{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}`, "$anchor"},
		"array of items":  {`{"items":[{}]}`, "type"},
		"unchecked type":  {`{"$schema":"http://json-schema.org/draft-07/schema#","minContains":"x"}`, "minContains"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range refused(t, c.schema) {
				if p.Keyword == c.keyword {
					return
				}
			}
			t.Errorf("refused for another reason: %v", refused(t, c.schema))
		})
	}
}

func TestAllProblemsOfASchemaAtOnce(t *testing.T) {
	t.Parallel()
	problems := refused(t, `{"type":"float","properties":{"a b":{"minLength":"x"},"c":{"$ref":"http://x/y"}},"required":[1]}`)
	got := fmt.Sprint(problems)
	for _, pointer := range []string{"/type:", "/properties/a b/minLength:", "/properties/c/$ref:", "/required/0:"} {
		if !strings.Contains(got, pointer) {
			t.Errorf("no problem at %s in %s", pointer, got)
		}
	}
}

// A schema with everything at its limit compiles in acceptable time.
func TestSchemasAtTheBoundsCompile(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	const n = maxSubschemas/2 - 1
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"}]},`, i, i+1)
	}
	fmt.Fprintf(&b, `"d%d":{"type":"object"}}}`, n)
	s := compiled(t, b.String())
	if err := s.Validate(json.RawMessage(`{"a":1}`)); err != nil {
		t.Error(err)
	}
	invalid(t, s, "1")
}

// A schema of a few lines that requires 2^60 checks of one value, and one whose work doubles with
// each level of the document. The library's own validator would need years.
func TestWorkIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/a0","$defs":{`)
	for i := range 60 {
		fmt.Fprintf(&b, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	b.WriteString(`"a60":{}}}`)
	deep := strings.Repeat(`{"a":`, 200) + "{}" + strings.Repeat("}", 200)
	for name, c := range map[string]struct{ schema, doc string }{
		"doubling references": {b.String(), "{}"},
		"doubling levels":     {`{"allOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]}`, deep},
		"inside not":          {strings.Replace(b.String(), `{"$ref"`, `{"not":{"not":true},"$ref"`, 1), "{}"},
		"large pattern, text": {`{"properties":{"a":{"allOf":[{"pattern":"(x{900})*y"},{"pattern":"(x{901})*y"}]}}}`, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`},
		"unevaluated":         {`{"items":{"allOf":[` + strings.TrimSuffix(strings.Repeat(`{"unevaluatedProperties":{"type":"integer"}},`, 500), ",") + `]}}`, "[" + strings.TrimSuffix(strings.Repeat(`{"a":1,"b":2,"c":3,"d":4,"e":5},`, 10000), ",") + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := invalid(t, compiled(t, c.schema), c.doc)
			if len(e.Problems) != 1 || e.Problems[0].Keyword != "limit" {
				t.Errorf("problems %v, want the one about work", e.Problems)
			}
		})
	}
}

func TestHostilePayloads(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"properties":{"n":{"type":"integer","minimum":0,"multipleOf":3},"u":{"uniqueItems":true},"r":{"format":"regex"},"l":{"items":{"type":"string"}}}}`)
	for name, c := range map[string]struct{ doc, keyword string }{
		"exponent":        {`{"n":1e1000001}`, "number"},
		"exponent of i64": {`{"n":1e99999999999999999999}`, "number"},
		"small exponent":  {`{"n":1E-401}`, "number"},
		"long number":     {`{"n":` + strings.Repeat("1", 401) + `}`, "number"},
		"deep":            {strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000), "limit"},
		"many values":     {`{"x":[` + strings.Repeat("1,", maxValues) + `1]}`, "limit"},
		"duplicate names": {`{"n":3,"\u006e":-1}`, "json"},
		"invalid UTF-8":   {"{\"x\":\"\xff\"}", "json"},
		"lone surrogate":  {`{"x":"\ud800"}`, "json"},
		"cut":             {`{"n":`, "json"},
		"empty":           {" ", "json"},
		"two":             {`{}{}`, "json"},
		"large regex":     {`{"r":"` + strings.Repeat("x{1000}", 150) + `"}`, "format"},
		"many bad items":  {`{"l":[` + strings.Repeat("1,", 200_000) + `1]}`, "type"},
		"same item twice": {`{"u":[{"a":1.0,"b":[]},{"b":[],"a":1}]}`, "uniqueItems"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := invalid(t, s, c.doc)
			if e.Problems[0].Keyword != c.keyword {
				t.Errorf("refused for another reason: %v", e.Problems)
			}
			if len(e.Problems) > MaxProblems || len(e.Error()) > 2_000 {
				t.Errorf("%d problems, message of %d bytes", len(e.Problems), len(e.Error()))
			}
			if name == "many bad items" && (len(e.Problems) != MaxProblems || !e.Truncated) {
				t.Errorf("%d problems, truncated %v; want the list cut and marked", len(e.Problems), e.Truncated)
			}
		})
	}
	// Items that a careless hash treats as equal.
	for _, doc := range []string{`{"u":[["a","b"],["a\",\"b"],["a\u0003b"],[["a"],"b"]]}`, `{"u":["1",1,[1],{"a":1},{"a":"1"},null,true,false,0,-1]}`, `{"u":["a\"",["a"],"a"]}`, `{"u":[["a","",""],["a\""]]}`} {
		if err := s.Validate(json.RawMessage(doc)); err != nil {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

// Large integers are compared digit by digit, not as doubles.
func TestNumbersAreExact(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"maximum":9007199254740992,"type":"integer"}`)
	if err := s.Validate(json.RawMessage("9007199254740992")); err != nil {
		t.Error(err)
	}
	invalid(t, s, "9007199254740993")
	invalid(t, s, "9007199254740992.5")
	big := compiled(t, `{"const":12345678901234567890123}`)
	if err := big.Validate(json.RawMessage("1.2345678901234567890123e22")); err != nil {
		t.Error(err)
	}
	invalid(t, big, "12345678901234567890124")
}

// Values of a payload do not appear in messages about it.
func TestMessagesEchoNoValues(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"type":"object","properties":{
		"a":{"type":"integer"},"b":{"enum":["x"]},"c":{"const":1},"d":{"pattern":"^z"},"e":{"format":"date-time"},"f":{"maxLength":1},"g":{"minimum":5},
		"h":{"anyOf":[{"type":"null"},{"const":"q"}]},"i":{"uniqueItems":true},"j":{"not":{}},"k":{"propertyNames":{"maxLength":2}}},"additionalProperties":{"type":"null"}}`)
	const secret = "hunter2-hunter2"
	invalid(t, s, `{"a":"S","b":"S","c":"S","d":"S","e":"S","f":"S","g":4.75,"h":"S","i":["S","S"],"j":"S","z":"S","k":{"long":1}}`)
	e := invalid(t, s, strings.ReplaceAll(`{"a":"S","b":"S","c":"S","d":"S","e":"S","f":"S","g":4.75,"h":"S","i":["S","S"],"j":"S","z":"S","k":{"long":1}}`, `"S"`, `"`+secret+`"`))
	text := fmt.Sprint(e.Error(), e.Strings(), e.Problems)
	if strings.Contains(text, "hunter") || strings.Contains(text, "4.75") {
		t.Errorf("a value got out: %s", text)
	}
	for _, member := range strings.Split("abcdefghijkz", "") {
		if !strings.Contains(text, "/"+member) {
			t.Errorf("no problem about %s in %s", member, text)
		}
	}
	long := invalid(t, s, `{"`+strings.Repeat("n", 100_000)+`":1,"a":"`+strings.Repeat("v", 100_000)+`","b":1}`)
	if n := len(fmt.Sprint(long.Error(), long.Problems)); n > 3_000 {
		t.Errorf("the message has %d bytes", n)
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"type":"object","required":["kind"],"properties":{"kind":{"enum":["a","b"]},"n":{"type":"integer","maximum":10},"list":{"items":{"type":"string"}}},
		"oneOf":[{"properties":{"kind":{"const":"a"}},"required":["x"]},{"properties":{"kind":{"const":"b"}}},{"type":"null"}],"additionalProperties":true}`)
	for doc, want := range map[string]string{
		`[]`:                                `[(root): must be object, not array (type)]`,
		`{"kind":"b","n":11,"list":["",1]}`: `[/n: must be at most 10 (maximum) /list/1: must be string, not number (type)]`,
		`{"kind":"a"}`:                      `[(root): fits none of the 3 alternatives (oneOf) (root): lacks the property "x" (required)]`,
		`{"n":1.5,"x":1}`:                   `[(root): lacks the property "kind" (required) /n: must be integer, not a number with a fraction (type) (root): fits more than one alternative, exactly one must fit (oneOf)]`,
	} {
		if got := fmt.Sprint(invalid(t, s, doc).Problems); got != want {
			t.Errorf("%s\n got %s\nwant %s", doc, got, want)
		}
	}
}

// Every keyword stops at the work limit: only the last step may exceed it.
func TestWorkEndsAtTheLimit(t *testing.T) {
	t.Parallel()
	const members = 1_000
	var doc, present, lacking strings.Builder
	for i := range members {
		fmt.Fprintf(&doc, `,"m%d":0`, i)
		fmt.Fprintf(&present, `,"m%d"`, members-1-i)
		fmt.Fprintf(&lacking, `,"n%d":{}`, i)
	}
	names, subschemas := present.String()[1:], lacking.String()[1:]
	for name, schema := range map[string]string{
		"required":              `{"required":[` + names + `]}`,
		"dependentRequired":     `{"dependentRequired":{"m0":[` + names + `]}}`,
		"dependentRequired, if": `{"dependentRequired":{` + strings.ReplaceAll(subschemas, "{}", `["x"]`) + `}}`,
		"dependentSchemas":      `{"dependentSchemas":{` + subschemas + `}}`,
	} {
		s, e := compiled(t, schema), new(eval)
		if p := e.parse([]byte("{"+doc.String()[1:]+"}"), maxDepth, maxValues); p != nil {
			t.Fatal(p)
		}
		e.work = 10 * members
		if e.check(s.root, 0, nil); e.work >= 0 || e.work < -members {
			t.Errorf("%s: %d steps are left", name, e.work)
		}
	}
}

// An enum of many texts costs no more for a long text with escapes than for a short one.
func TestALongTextIsNotComparedWithEachOfAnEnum(t *testing.T) {
	s := compiled(t, `{"properties":{"a":{"enum":[`+strings.TrimSuffix(strings.Repeat(`"a","b","c",`, 1_000), ",")+`]}}}`)
	if n := testing.AllocsPerRun(1, func() { invalid(t, s, `{"a":"\u0064`+strings.Repeat("x", 1_000)+`"}`) }); n > 1_000 {
		t.Errorf("%v allocations", n)
	}
	for _, doc := range []string{`{"a":"\u0061"}`, `{"a":"b"}`} {
		if err := s.Validate(json.RawMessage(doc)); err != nil {
			t.Error(doc, err)
		}
	}
}

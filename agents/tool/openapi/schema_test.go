package openapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// Results are validated against the schema of an answer, if it is plain.
func TestPlainAnswersAreHeldToTheirSchema(t *testing.T) {
	t.Parallel()
	for responses, want := range map[string]string{
		`{"200":{"description":"ok","content":{"application/json":{"schema":{"type":"object","required":["id","pw"],"description":"x","properties":{"id":{"type":"string","format":"uuid"},"pw":{"type":"string","writeOnly":true}},"additionalProperties":false}}}}}`: `{"properties":{"id":{"type":"string"}},"required":["id"],"type":"object"}`,
		`{"200":{"description":"ok","content":{"application/json":{"schema":{"type":["array"],"items":{"type":["integer","null"]}}}}},"404":{"description":"no"}}`:                                                                                                     `{"items":{"type":["integer","null"]},"type":"array"}`,
		`{"200":{"description":"ok","content":{"application/json":{"schema":{"type":"object"}}}},"201":{"description":"ok"}}`:                                                                                                                                          "",
		`{"200":{"description":"ok","content":{"application/json":{"schema":{"type":"object"}},"text/csv":{}}}}`:                                                                                                                                                       "",
		`{"200":{"description":"ok","content":{"application/json":{"schema":{"oneOf":[{"type":"object"}]}}}}}`:                                                                                                                                                         "",
		`{"200":{"description":"ok","content":{"application/json":{"schema":{"type":"object","properties":{"a":{"anyOf":[{"type":"string"}]}}}}}}}`:                                                                                                                    "",
		`{"200":{"description":"ok","content":{"application/json":{}}}}`:                                                                                                                                                                                               "",
		`{"200":{"description":"ok"}}`:     "",
		`{"default":{"description":"ok"}}`: "",
		`{}`:                               "",
	} {
		a := newAPI(t, `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{"/x":{"get":{"operationId":"op","responses":`+responses+`}}}}`)
		tools, err := a.tools(t, aaif.Tool{}, Options{})
		if err != nil {
			t.Errorf("%s: %v", responses, err)
			continue
		}
		if got := string(tools["api"].Definition().Output); got != want {
			t.Errorf("%s:\n%s, want\n%s", responses, got, want)
		}
	}
}

// 3.1 is JSON Schema already.
func TestSchemasOfVersion31(t *testing.T) {
	t.Parallel()
	a := newAPI(t, `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{"/x":{"post":{"operationId":"op","requestBody":{"content":{"application/json":{"schema":
		{"type":["object","null"],"$id":"https://elsewhere.example/s","$schema":"http://json-schema.org/draft-04/schema#","properties":{"n":{"type":"number","exclusiveMinimum":0,"const":5},
		"t":{"type":"array","prefixItems":[{"type":"string"},true],"items":false,"contains":{"const":"x"},"minContains":0},"any":true},
		"patternProperties":{"^x-":{"type":"string"},"(?<!x)":{"type":"string"}},"dependentRequired":{"n":["t"]},"if":{"required":["n"]},"then":{"required":["t"]},
		"unevaluatedProperties":false,"propertyNames":{"maxLength":9},"nullable":true,"x-own":1,"example":{}}}}},"responses":{}}}}}`)
	tools, err := a.tools(t, aaif.Tool{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"additionalProperties":false,"properties":{"body":{"dependentRequired":{"n":["t"]},"if":{"required":["n"]},"patternProperties":{"^x-":{"type":"string"}},` +
		`"properties":{"any":true,"n":{"const":5,"exclusiveMinimum":0,"type":"number"},"t":{"contains":{"const":"x"},"items":false,"minContains":0,"prefixItems":[{"type":"string"},true],"type":"array"}},` +
		`"propertyNames":{"maxLength":9},"then":{"required":["t"]},"type":["object","null"],"unevaluatedProperties":false}},"type":"object"}`
	if got := string(tools["api"].Definition().Parameters); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// A readOnly property is required in answers only, even if another part of the schema requires it.
func TestAReadOnlyPropertyIsNotRequiredOfARequest(t *testing.T) {
	t.Parallel()
	const base = `{"type":"object","properties":{"id":{"type":"string","readOnly":true}}}`
	for body, want := range map[string]string{
		`{"required":["id","name"],"allOf":[` + base + `]}`:                                                                                 `{"allOf":[{"type":"object"}],"required":["name"]}`,
		`{"allOf":[` + base + `,{"required":["id","name"]}]}`:                                                                               `{"allOf":[{"type":"object"},{"required":["name"]}]}`,
		`{"allOf":[{"required":["id"]},{"allOf":[{"$ref":"#/components/schemas/Base"}]}]}`:                                                  `{"allOf":[{},{"allOf":[{"type":"object"}]}]}`,
		`{"required":["o"],"allOf":[` + base + `],"properties":{"o":{"required":["id"]}}}`:                                                  `{"allOf":[{"type":"object"}],"properties":{"o":{"required":["id"]}},"required":["o"]}`,
		`{"required":["id"],"allOf":[{"$ref":"#/components/schemas/Circle"}]}`:                                                              `{"allOf":[{"$ref":"#/$defs/Circle"}]}`,
		`{"allOf":[{"type":"object","properties":{"id":{"readOnly":true}}}],"required":["id"]}`:                                             `{"allOf":[{"type":"object"}]}`,
		`{"allOf":[{"$ref":"#/components/schemas/Has"},{"properties":{"id":{"readOnly":true}}}],"not":{"$ref":"#/components/schemas/Has"}}`: `{"allOf":[{"$ref":"#/$defs/Has"},{}],"not":{"$ref":"#/$defs/Has_2"}}`,
		`{"oneOf":[{"properties":{"id":{"readOnly":true}}},{"type":"string"}],"required":["id"]}`:                                           `{"oneOf":[{},{"type":"string"}],"required":["id"]}`,
	} {
		a := newAPI(t, `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{"/x":{"post":{"operationId":"op","responses":{},"requestBody":{"content":{"application/json":{"schema":`+body+`}}}}}},
			"components":{"schemas":{"Has":{"allOf":[{"required":["id","name"]}]},"Base":`+base+`,"Circle":{"allOf":[{"$ref":"#/components/schemas/Circle"},`+base+`]}}}}`)
		tools, err := a.tools(t, aaif.Tool{}, Options{})
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if got := string(tools["api"].Definition().Parameters); !strings.Contains(got, `"body":`+want+`}`) {
			t.Errorf("%s:\n%s, has no\n%s", body, got, want)
		}
	}
}

// A body in an unsupported encoding is left out if it is optional, and the log says so.
func TestABodyThatCannotBeWrittenIsSaid(t *testing.T) {
	t.Parallel()
	a := newAPI(t, strings.Replace(petstore, "requestBody: {required: true, content: {multipart", "requestBody: {content: {multipart", 1))
	var log bytes.Buffer
	tools, err := a.tools(t, aaif.Tool{}, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if tools["upload"] == nil || strings.Contains(string(tools["upload"].Definition().Parameters), "body") {
		t.Errorf("upload: %+v", tools["upload"])
	}
	if strings.Count(log.String(), "a body is left out") != 1 || !strings.Contains(log.String(), "upload") && !strings.Contains(log.String(), "/photo") {
		t.Errorf("log %s", &log)
	}
}

// The class of findings 11 and 20 of the security review: regular expressions of a
// description were compiled whatever they were and however many.
func TestPatternsOfADescriptionAreBounded(t *testing.T) {
	t.Parallel()
	var properties []string
	for i := range 1_000 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string","pattern":"a{999}%[1]d"}`, i))
	}
	a := newAPI(t, `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{"/x":{"post":{"operationId":"op","responses":{},"requestBody":{"content":{"application/json":{"schema":
		{"type":"object","properties":{"large":{"type":"string","pattern":"(a{999}){2}b{999}"},`+strings.Join(properties, ",")+`}}}}}}}}}`)
	tools, err := a.tools(t, aaif.Tool{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	told := string(tools["api"].Definition().Parameters)
	if n := strings.Count(told, `"pattern"`); n == 0 || n*1_000 > maxPatterns {
		t.Errorf("%d patterns of some thousand instructions are told, within a bound of %d", n, maxPatterns)
	}
	if strings.Contains(told, "b{999}") || strings.Count(told, `"type":"string"`) != 1_001 {
		t.Errorf("a pattern that is too large is told, or its property is not: %.300s", told)
	}
}

// A truncated quotation of a description has a mark, so that a part of a credential in it is
// recognised.
func TestNoPartOfACredentialIsLogged(t *testing.T) {
	t.Parallel()
	known := &secret.Redactor{}
	known.Add(secret.New("s3cr3t-value"))
	a := newAPI(t, pathed("/"+strings.Repeat("x", 190)+"s3cr3t-value?"))
	var log bytes.Buffer
	_, err := a.tools(t, aaif.Tool{}, Options{Logger: slog.New(secret.LogHandler(slog.NewTextHandler(&log, nil), known))})
	if err == nil {
		t.Fatal("an operation is offered whose path is none")
	}
	if text := log.String() + known.Scrub(err.Error()); strings.Contains(text, "s3cr") || !strings.Contains(text, "is no path") {
		t.Errorf("%s", text)
	}
}

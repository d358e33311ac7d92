package openapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// The library that reads descriptions decodes numbers to floats, which do not hold 9007199254740993.
func TestLongNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	const schemas = `{"type":"object","properties":{
		"account":{"type":"integer","enum":[9007199254740993,9007199254740995,7],"nullable":true},
		"part":{"allOf":[{"$ref":"#/components/schemas/enum"},{"$ref":"#/components/schemas/enum"}]},
		"between":{"type":"integer","minimum":9007199254740993,"exclusiveMinimum":true,"maximum":9223372036854775807},
		"step":{"type":"integer","multipleOf":9007199254740993,"default":18014398509481986},
		"enum":{"type":"object","default":{"id":9007199254740993},"properties":{"default":{"type":"array","items":{"type":"number","enum":[0.12345678901234567891]}}}}}}`
	const components = `{"schemas":{"enum":{"type":"integer","enum":[9007199254740993]},"default":{"type":"integer","enum":[9007199254740993]}},
		"parameters":{"default":{"name":"id","in":"query","schema":{"type":"integer","enum":[9007199254740993]}}}}`
	description := `{"openapi":"3.0.3","info":{"title":"t","version":"1"},"paths":{"/x":{"post":{"operationId":"op","parameters":[{"$ref":"#/components/parameters/default"}],
		"requestBody":{"content":{"application/json":{"schema":` + schemas + `}}},
		"responses":{"200":{"description":"ok","content":{"application/json":{"schema":{"type":"object","properties":{"id":{"type":"integer","enum":[9007199254740993]}}}}}}}}}},"components":` + components + `}`
	yaml := "openapi: 3.0.3\ninfo: {title: t, version: '1'}\npaths: " + strings.TrimSuffix(description[strings.Index(description, `"paths":`)+len(`"paths":`):strings.Index(description, `,"components"`)], ",") +
		"\ncomponents: " + components + "\n"
	for form, text := range map[string]string{"JSON": description, "YAML": yaml} {
		a := newAPI(t, text)
		tools, err := a.tools(t, aaif.Tool{}, Options{})
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		d := tools["api"].Definition()
		for _, want := range []string{
			`"enum":[9007199254740993,9007199254740995,7,null]`, `"enum":{"enum":[9007199254740993],"type":"integer"}`, `"exclusiveMinimum":9007199254740993,"maximum":9223372036854775807`,
			`"default":18014398509481986,"multipleOf":9007199254740993`, `"default":{"id":9007199254740993}`, `"id":{"enum":[9007199254740993],"type":"integer"}`,
		} {
			if !strings.Contains(string(d.Parameters), want) {
				t.Errorf("%s: the schema lacks %s: %s", form, want, d.Parameters)
			}
		}
		if !strings.Contains(string(d.Output), `[9007199254740993]`) || strings.Contains(string(d.Parameters), "x-") {
			t.Errorf("%s: %s and %s", form, d.Parameters, d.Output)
		}
		a.answer = nil
		guarded, err := tool.Guard(tools["api"], tool.Options{})
		if err != nil {
			t.Fatal(err)
		}
		const body = `{"account":9007199254740993,"part":9007199254740993,"between":9007199254740994,"step":9007199254740993}`
		if _, err := guarded.Call(t.Context(), json.RawMessage(`{"id":9007199254740993,"body":`+body+`}`)); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		if got := a.seen(); got.URI != "/x?id=9007199254740993" || got.Body != body {
			t.Errorf("%s: %s with %s was sent", form, got.URI, got.Body)
		}
		for _, bad := range []string{`{"body":{"account":9007199254740992}}`, `{"body":{"between":9007199254740993}}`, `{"body":{"step":9007199254740992}}`, `{"id":9007199254740992}`} {
			if _, err := guarded.Call(t.Context(), json.RawMessage(bad)); err == nil {
				t.Errorf("%s: %s is accepted", form, bad)
			}
		}
	}
}

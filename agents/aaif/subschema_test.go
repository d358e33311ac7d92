package aaif

import (
	"fmt"
	"strings"
	"testing"
)

// Finding 11 of the security review: a document of 1 MiB kept lint busy for minutes with the schemas that it
// embeds, and took gigabytes, and was called good. They are refused now before they are compiled.
func TestCostlySchemasOfADocumentAreRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	many := func(n int, format string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(parts, ",")
	}
	tools := func(n int, schema string) string {
		return `"tools":[` + many(n, `{"name":"t%[1]d","description":"d","protocol":"function","parameters_schema":`+schema+`}`) + `]`
	}
	for name, member := range map[string]string{
		"many patterns in one schema":         `"io":{"input_schema":{"allOf":[` + many(3200, `{"pattern":"a{999}%d"}`) + `]}}`,
		"a large class, repeated":             `"io":{"input_schema":{"allOf":[` + many(30, `{"pattern":"\\pL{999}%d"}`) + `]}}`,
		"large classes, one after the other":  `"io":{"output_schema":{"allOf":[` + many(200, `{"pattern":"`+strings.Repeat(`\\pL`, 300)+`%d"}`) + `]}}`,
		"patterns that are none":              `"io":{"input_schema":{"allOf":[` + many(200, `{"pattern":"`+strings.Repeat(`\\pL`, 300)+`(%d"}`) + `]}}`,
		"many subschemas":                     `"io":{"input_schema":{"properties":{` + many(60_000, `"p%d":{}`) + `}}}`,
		"a pattern in each of many tools":     tools(3200, `{"pattern":"a{999}%[1]d"}`),
		"many subschemas in each of 30 tools": tools(30, `{"title":"%[1]d","allOf":[`+strings.TrimSuffix(strings.Repeat("{},", 1900), ",")+`]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mustParse(t, []byte(`{"sc_standard":"SC-006","sc_version":"3.4.0","agent_id":"6f1f4d0e-5b1c-4a53-9a39-3b8e3a4f8f10","agent":{"name":"A","goal":"G",`+member+`}}`), Options{})
			for _, p := range d.Lint() {
				if p.Rule == RuleSubschema {
					return
				}
			}
			t.Errorf("nothing is said of its schemas: %.500s", fmt.Sprint(d.Lint()))
		})
	}
}

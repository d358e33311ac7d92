package adapters

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Problems from New have a place in the file, and are reported together with those from Read.
func TestCheckFindsAllThatIsWrongAtItsPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                              nil,
		"- 1":                           {"0:0 the file: a list does not fit"},
		"models:\n\tproviders: {}":      {"2:1 not YAML: a tab"},
		"budget: {run_usd: -1}":         {"1:10 /budget/run_usd: a bound must be"},
		"tree: {max_depth: -3}":         {"1:8 /tree/max_depth: a bound must be"},
		"models: {catalog: nope.json}":  {"1:10 /models/catalog: "},
		"models: {breaker_failures: 1}": nil,
		"models: {breaker_failures: -1, breaker_open_seconds: -1}":                      {"1:10 /models/breaker_failures: it", "1:32 /models/breaker_open_seconds: it"},
		"models: {providers: {lab: {base_url: 'not a url'}}}":                           {"1:28 /models/providers/lab/base_url: it is not"},
		"models: {providers: {'a/b': {base_url: x}}}":                                   {"1:30 /models/providers/a~1b/base_url: it is not"},
		"learning:\n  rules: {min_clients: 1, similarity: 3}":                           {"2:11 /learning/rules/min_clients: 1 is", "2:27 /learning/rules/similarity: 3 is"},
		"learning:\n  sensitive_pattern: '('\n  cohorts: {a: ['']}":                     {"2:3 /learning/sensitive_pattern: error", "3:13 /learning/cohorts/a: "},
		"outbound:\n  allow:\n  - ok.example\n  - 'http://'\n  private: [x y]":          {"4:5 /outbound/allow/1: ", "5:13 /outbound/private/0: "},
		"programs: {env: [NATS_URL, OK, AEEMESH_X]}":                                    {"1:18 /programs/env/0: NATS_URL may", "1:32 /programs/env/2: AEEMESH_X may"},
		"mcp_servers: {a: {}, b: {command: [x], tools: ['*x']}}":                        {"1:15 /mcp_servers/a: it needs", "1:48 /mcp_servers/b/tools/0: "},
		"vaults: {custom: {allow: []}}":                                                 {"1:19 /vaults/custom/allow: name"},
		"vaults: {custom: {allow: [x], comand: {command: [x]}}}":                        {"1:31 /vaults/custom/comand is not known"},
		"telemetry: {endpoints: [x]}\nsecrets: {env: ['']}":                             {"1:25 /telemetry/endpoints/0: ", "2:17 /secrets/env/0: "},
		"budget: {run_dollars: 1}\ntree: {max_tasks: many}\noutbond: {}":                {"1:10 /budget/run_dollars is not", "2:8 /tree/max_tasks: ", "3:1 /outbond is not"},
		"outbound: {allow: [1, 'http://', {}]}\nbudget: {run_usd: 0, x: 1}":             {"1:20 /outbound/allow/0: ", "1:23 /outbound/allow/1: ", "1:34 /outbound/allow/2: ", "2:10 /budget/run_usd", "2:22 /budget/x is"},
		"\n{\"tree\": {\"max_depth\": 1},\n \"budget\": {\"run_usd\": 0}}":              {"3:13 /budget/run_usd: a bound"},
		"openapi_servers: {a: x}\nmodels: {providers: {lab: {key: {env: A, file: B}}}}": {"1:19 /openapi_servers/a: ", "2:28 /models/providers/lab/key: exactly"},
	} {
		got := Check([]byte(text), nil, Options{})
		for i, p := range got {
			if line := fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Message); i >= len(want) || !strings.HasPrefix(line, want[i]) {
				t.Errorf("%q: %s, want %q", text, line, want)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%q: %d problems, want %d", text, len(got), len(want))
		}
	}
}

// The name of a file at the beginning of a message is not a pointer.
func TestTheNameOfAFileIsNoPlace(t *testing.T) {
	t.Parallel()
	catalog := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(catalog, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := Check([]byte("models: {catalog: "+catalog+"}"), nil, Options{})
	if len(got) != 1 || got[0].Pointer != "/models/catalog" || !strings.HasPrefix(got[0].Message, "/models/catalog: "+catalog+": ") {
		t.Errorf("%+v", got)
	}
}

func TestProblemsOfAConfigurationMadeInGoHaveNoPlace(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Models: Models{BreakerFailures: -1}}, Options{})
	if want := "configuration: /models/breaker_failures: it must not be negative"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

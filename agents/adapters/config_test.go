package adapters

import (
	"strings"
	"testing"
)

func TestConfigIsStrict(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                     "",
		"{}":                                   "",
		"nobody_knows: 1":                      "/nobody_knows is not known",
		`{"nobody_knows": 1}`:                  "/nobody_knows is not known",
		"a: 1\na: 2":                           "",
		"- 1":                                  "the file: a list does not fit",
		"outbound: {allow: [{a: b}]}":          "/outbound/allow/0: an object does not fit: it has to be a text",
		"tree: {max_depth: deep}":              "/tree/max_depth: a text does not fit: it has to be a whole number",
		"budget: {run_tokens: many}":           "/budget/run_tokens: a text does not fit: it has to be a whole number",
		"budget: {run_tokens: 1.5}":            "/budget/run_tokens: a number does not fit: it has to be a whole number",
		"budget: {run_usd: 0.25}":              "",
		"budget: {run_usd: x}":                 "/budget/run_usd",
		"budget: {runs: 1}":                    "/budget/runs is not known",
		"tree: {max_depth: 8, max_tasks: 100}": "",
		"tree: {depth: 8}":                     "/tree/depth is not known",
		"tree: {tokens: 8}":                    "/tree/tokens is not known",
		"x: &a 1\ny: *a":                       "alias",
		"\n\nmodles: {}":                       "3:1: /modles is not known",
		"modles: {}":                           "/modles is not known (did you mean models?)",
		"models: {providers: {lab: {baseurl: x}}}":                "/models/providers/lab/baseurl is not known (did you mean base_url?)",
		"mcp_servers: {a: {comand: [x]}}":                         "(did you mean command?)",
		"vaults: {custom: {allow: [x], comand: {command: [x]}}}":  "(did you mean command?)",
		"vaults: {custom: {allow: [x], command: {comandd: [x]}}}": "(did you mean command?)",
		"budget: {zzzzz: 1}":                                      "/budget/zzzzz is not known",
		"models:\n\tproviders: {}":                                "configuration: 2:1: not YAML: a tab",
		strings.Repeat("x", 2<<20):                                "larger",
	} {
		_, err := Read([]byte(text))
		switch {
		case text == "a: 1\na: 2":
			if err == nil {
				t.Errorf("%q is accepted", text)
			}
		case err != nil && (strings.Contains(err.Error(), "AAIF document") || strings.Contains(want, "zzzzz") && strings.Contains(err.Error(), "did you mean")):
			t.Errorf("%.40q: %v", text, err)
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func TestABoundThatIsGivenIsGreaterThanZero(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"budget: {run_usd: 0}":                        {"1:10: /budget/run_usd: a bound must be greater than 0 (leave it out for no bound)"},
		"budget: {tree_usd: 1e-12}":                   {"/budget/tree_usd: a bound must be greater than 0"},
		"budget: {run_usd: -0.0}":                     {"/budget/run_usd: a bound"},
		"budget: {run_usd: -1}":                       {"/budget/run_usd: a bound"},
		"budget: {run_tokens: 0}":                     {"/budget/run_tokens: a bound"},
		"budget:\n  run_usd: 1\n  tree_tokens: 0":     {"3:3: /budget/tree_tokens: a bound"},
		"budget: {run_usd: 0, tree_tokens: 0}":        {"/budget/run_usd", "/budget/tree_tokens"},
		`{"budget": {"run_usd": 0}}`:                  {"configuration: 1:13: /budget/run_usd: a bound"},
		"tree: {max_tasks: 0}":                        {"/tree/max_tasks: a bound must be greater than 0 (leave it out for the default)"},
		"tree: {max_depth: -3, max_iterations: 0}":    {"/tree/max_depth", "/tree/max_iterations"},
		"budget: {run_usd: 1e-9, run_tokens: 1}":      nil,
		"budget: {run_usd: null}\ntree: {}":           nil,
		"budget: {}\nmodels: {breaker_failures: 0}":   nil,
		"tree: {max_depth: 1}\noutbound: {allow: []}": nil,
	} {
		_, err := Read([]byte(text))
		if want == nil && err != nil || want != nil && err == nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want %q", text, err, w)
			}
		}
	}
}

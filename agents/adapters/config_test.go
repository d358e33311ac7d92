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
		"outbound: {allow: [{a: b}]}":          "/outbound/allow/0: an object does not fit",
		"budget: {run_usd: 0.25}":              "",
		"budget: {run_usd: x}":                 "/budget/run_usd",
		"budget: {runs: 1}":                    "/budget/runs is not known",
		"tree: {max_depth: 8, max_tasks: 100}": "",
		"tree: {depth: 8}":                     "/tree/depth is not known",
		"tree: {tokens: 8}":                    "/tree/tokens is not known",
		"x: &a 1\ny: *a":                       "alias",
		strings.Repeat("x", 2<<20):             "larger",
	} {
		_, err := Read([]byte(text))
		switch {
		case text == "a: 1\na: 2":
			if err == nil {
				t.Errorf("%q is accepted", text)
			}
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

package aaif

import (
	"bytes"
	"maps"
	"strings"
	"testing"
)

func TestYAMLMeansTheSameWithEveryLineBreak(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"double quotes":  "a: \"one\n  two\n\n  three \\\n  four\"\nb: 1\n",
		"single quotes":  "a: 'one\n  two\n\n\n  three'\nb: 1\n",
		"plain":          "a: one\n  two\n\n  three\nb: 1\n",
		"literal":        "a: |\n  one\n    two\n\n  three\nb: 1\n",
		"literal, kept":  "a: |+\n  one\n\n\nb: 1\n",
		"folded":         "a: >\n  one\n  two\n\n  three\n\nb: 1\n",
		"folded, strip":  "a: >-\n  one\n   more\n  two\n\nb: 1\n",
		"flow":           "a: [one\n  two, 'three\n  four',\n  \"five\n\n  six\"]\nb: {c:\n  1}\n",
		"with a comment": "# one\na: 1 # two\n# three\n\nb:\n  - 2\n",
		"an escape":      "a: \"one\\r\\n\\\n  two\"\nb: 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := make(map[string]position)
			json, problem := decodeYAML([]byte(text), 64, want)
			if problem != nil {
				t.Fatal(problem)
			}
			for lineBreak, about := range map[string]string{"\r\n": "CR LF", "\r": "CR"} {
				places := make(map[string]position)
				got, problem := decodeYAML([]byte(strings.ReplaceAll(text, "\n", lineBreak)), 64, places)
				switch {
				case problem != nil:
					t.Errorf("%s: %v", about, problem)
				case !bytes.Equal(got, json):
					t.Errorf("%s: %s, want %s", about, got, json)
				case !maps.Equal(places, want):
					t.Errorf("%s: places %v, want %v", about, places, want)
				}
			}
		})
	}
}

// JSON and YAML have control characters as escapes only.
func TestYAMLHasNoBareControlCharacters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a: 1\nb: x\x1bz\n", "a: 1\nb: 'x\x00z'\n", "a: 1\nb: \"x\x07z\"\n", "a: 1\nb: # \x08z\n", "a: 1\nbéx:\x0c1\n"} {
		_, problem := decodeYAML([]byte(text), 8, nil)
		if problem == nil || problem.Rule != RuleYAML || problem.Line != 2 || problem.Column < 5 || problem.Column > 6 {
			t.Errorf("%q: %+v", text, problem)
		}
	}
	json, problem := decodeYAML([]byte("a: \"\\e\\x07\\0\"\nb: 'x\ty'\nc: x\x7f\n"), 8, nil)
	if want := `{"a":"\u001b\u0007\u0000","b":"x\ty","c":"x\u007f"}`; problem != nil || string(json) != strings.ReplaceAll(want, `\u007f`, "\x7f") {
		t.Errorf("escapes: %s, %v", json, problem)
	}
}

// The scanner leaves out a tab in a plain text.
func TestATabInAPlainYAMLTextIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a: x\ty\n", "a: [1\t2]\n", "a: x\n  y\tz\n", "a\tb: 1\n", "a: [x\t\ty]\n", "- a\tb\n"} {
		if json, problem := decodeYAML([]byte(text), 8, nil); problem == nil || problem.Rule != RuleYAML || problem.Line != 1 || problem.Hint == "" {
			t.Errorf("%q: %s, %+v", text, json, problem)
		}
	}
	for text, want := range map[string]string{
		"a:\tx\n": `{"a":"x"}`, "a: x\t# c\n": `{"a":"x"}`, "a: x\t\nb: 1\t\n": `{"a":"x","b":1}`, "a: x\n  \ty\n": `{"a":"x y"}`,
		"a: [x,\ty\t]\n": `{"a":["x","y"]}`, "a: 'x\ty'\n": `{"a":"x\ty"}`, "a: |\n  x\ty\n": `{"a":"x\ty\n"}`, "a: \"\\t\"\n": `{"a":"\t"}`,
	} {
		if json, problem := decodeYAML([]byte(text), 8, nil); problem != nil || string(json) != want {
			t.Errorf("%q: %s, %v; want %s", text, json, problem, want)
		}
	}
}

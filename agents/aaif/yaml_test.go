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

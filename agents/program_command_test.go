package agents_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
)

func TestSplitCommand(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		`python3 agent.py`:         {"python3", "agent.py"},
		"  a\t b\n":                {"a", "b"},
		`sh -c 'a | b; echo "$X"'`: {"sh", "-c", `a | b; echo "$X"`},
		`a "b c" d\ e "" ''`:       {"a", "b c", "d e", "", ""},
		`a"b"'c'd`:                 {"abcd"},
		`a "x\"y\\z\n\$"`:          {"a", `x"y\z\n$`},
		`a 'b\'`:                   {"a", `b\`},
		`a --re=.*? b~c d#e`:       {"a", "--re=.*?", "b~c", "d#e"},
		"a\\\nb":                   {"a\nb"},
	} {
		got, err := agents.SplitCommand(line)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{
		``, ` `, `''`, `'a`, `"a`, `a \`, `a | b`, `a && b`, `a; b`, `a > b`, `a < b`, `$A`, `a $(b)`, "a `b`", `a "$B"`,
		"\"a`b`\"", `~/a`, `a ~/b`, `# a`, "a\x00b", `a (b)`,
	} {
		if got, err := agents.SplitCommand(line); err == nil {
			t.Errorf("%s: got %q, want an error", line, got)
		}
	}
}

func FuzzSplitCommand(f *testing.F) {
	f.Add(`a "b c" 'd' \e`)
	f.Fuzz(func(t *testing.T, line string) {
		words, err := agents.SplitCommand(line)
		if err != nil {
			return
		}
		// Quoting the words gives them back.
		var again []string
		for _, w := range words {
			again = append(again, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		got, err := agents.SplitCommand(strings.Join(again, " "))
		if err != nil || !reflect.DeepEqual(got, words) {
			t.Errorf("%q: %q, then %q, %v", line, words, got, err)
		}
	})
}

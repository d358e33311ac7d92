package runs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

// A list that --limit has cut is reported on stderr, with --json too: a script reads only a part of
// the runs otherwise, and its user does not know.
func TestAListThatIsCutSaysSo(t *testing.T) {
	t.Parallel()
	for _, json := range []bool{false, true} {
		for _, more := range []bool{false, true} {
			var out, words bytes.Buffer
			a := &session.App{Term: term.New(&out, &words, func(string) string { return "" })}
			a.Term.JSON = json
			if err := printRuns(a, []summary{{Run: "0f4c", Entity: "agent.a", Status: "completed"}}, more); err != nil {
				t.Fatal(err)
			}
			want := ""
			if more {
				want = "there are more: --limit 0 shows all\n"
			}
			if words.String() != want {
				t.Errorf("json %t, more %t: stderr %q, want %q", json, more, words.String(), want)
			}
			if lines := strings.Count(out.String(), "\n"); json && lines != 1 {
				t.Errorf("more %t: stdout has %d lines: %s", more, lines, out.String())
			}
		}
	}
}

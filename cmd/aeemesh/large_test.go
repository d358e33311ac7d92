package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is too large is told with both sizes, on both lanes, and a way out (section 6,
// row 10 of the operators' review).
func TestWhatIsTooLargeIsToldWithSizes(t *testing.T) {
	t.Parallel()
	urls := upForTest(t)
	file := filepath.Join(t.TempDir(), "large.json")
	if err := os.WriteFile(file, []byte(`{"text":"`+strings.Repeat("x", 2<<20)+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"NATS_URL": urls.URL, "HOME": t.TempDir(), "USER": "ada"}
	for _, args := range [][]string{{"send", "agent.a", "@" + file}, {"send", "agent.a", "@" + file, "--durable"}} {
		var out, words strings.Builder
		code := run(t.Context(), append(args, "--json"), strings.NewReader(""), &out, &words, func(name string) string { return env[name] })
		f := printedFailure(t, args[0], out.String())
		if code != 4 || f == nil || f.Code != "E_TOO_LARGE" || !strings.Contains(f.Message, "the message has 2097") || !strings.Contains(f.Message, "the server takes 1048576") || !strings.Contains(f.Hint, "reference") {
			t.Errorf("%v: exit %d, %s", args, code, out.String())
		}
	}
}

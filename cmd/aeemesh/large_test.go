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

// The hint of a name that is too long is not about payloads, which a server's max_payload bounds.
func TestANameThatIsTooLongHasItsOwnHint(t *testing.T) {
	t.Parallel()
	urls := upForTest(t)
	env := map[string]string{"NATS_URL": urls.URL, "HOME": t.TempDir(), "USER": "ada"}
	var out, words strings.Builder
	code := run(t.Context(), []string{"send", "agent.a", "hi", "--corr", strings.Repeat("c", 1025), "--json"}, strings.NewReader(""), &out, &words, func(name string) string { return env[name] })
	f := printedFailure(t, "send", out.String())
	if code != 4 || f == nil || f.Code != "E_TOO_LARGE" || !strings.Contains(f.Message, "corr has more than 1024 bytes") || f.Hint != "Choose a shorter one." {
		t.Errorf("exit %d, %s", code, out.String())
	}
}

// What is missing is named: a folder for keys, and a file where there is a URL.
func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	env := map[string]string{"HOME": "relative", "USER": "ada"}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"keys", "list"}, []string{"error: there is no home directory to keep keys in", "Give --keys DIR"}},
		{[]string{"keys", "list", "--json"}, []string{"there is no home directory to keep keys in"}},
		{[]string{"keys", "show", "ada"}, []string{"error: there is no home directory to keep keys in", "Give --keys DIR"}},
		{[]string{"validate", "https://docs.example/a.json"}, []string{"error: https://docs.example/a.json is a URL, and this command reads files", "curl -fsS"}},
	} {
		var out, words strings.Builder
		code := run(t.Context(), tt.args, strings.NewReader(""), &out, &words, func(name string) string { return env[name] })
		for _, want := range tt.want {
			if text := out.String() + words.String(); code != 3 || !strings.Contains(text, want) {
				t.Errorf("%v: exit %d, %s; want %s", tt.args, code, text, want)
			}
		}
	}
}

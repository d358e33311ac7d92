package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/state"
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

// A state may be larger, and nest deeper, than a document that an author writes.
func TestAStateIsValidatedWithinTheLimitsOfStates(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	files := map[string][]byte{
		"large_agent.json": []byte(`{"sc_standard": "SC-006", "agent": {"name": "A", "goal": "` + strings.Repeat("x", 2<<20) + `"}}`),
		"deep_agent.json":  []byte(`{"sc_standard": "SC-006", "agent": {"name": "A", "goal": "G"}, "x-d": ` + deep(100) + `}`),
		"large_state.json": nil, "large_state.cbor": nil, "deep_state.json": nil, "deep_state.cbor": nil,
		"hostile.json": []byte(`{"sc_standard": "SC-006", "state_id": ` + deep(200) + `}`),
	}
	dir := t.TempDir()
	for name, data := range files {
		if data == nil {
			c := state.New("agent.a", "t1", "")
			c.Append(model.User(strings.Repeat("x", 2<<20)), c.At(), 0)
			if strings.HasPrefix(name, "deep") {
				c.Truncate(0)
				c.SetVariable("deep", jsontext.Value(deep(100)))
			}
			var err error
			if data, err = (state.Codec{Encoding: aaif.Format(filepath.Ext(name)[1:])}).Encode(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"large_state.json": "ok", "large_state.cbor": "ok", "deep_state.json": "ok", "deep_state.cbor": "ok",
		"large_agent.json": "the document is larger than 1048576 bytes",
		"deep_agent.json":  "deeper than 64", "hostile.json": "deeper than 64",
	} {
		var out, words strings.Builder
		code := run(t.Context(), []string{"validate", filepath.Join(dir, name)}, strings.NewReader(""), &out, &words, func(string) string { return "" })
		if (code == 0) != (want == "ok") || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit %d, %.300s%s; want %s", name, code, out.String(), words.String(), want)
		}
	}
}

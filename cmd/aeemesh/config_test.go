package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The schema, "config show" and so the file have every flag of worker.
func TestConfigurationHasEveryFlagOfWorker(t *testing.T) {
	t.Parallel()
	code, out, words := runForTest("config", "schema")
	var schema struct {
		Properties map[string]struct {
			Properties map[string]any
		}
	}
	if err := json.Unmarshal([]byte(out), &schema); err != nil || code != exitOK {
		t.Fatalf("exit %d, error %v: %s", code, err, words)
	}
	code, out, words = runForTest("config", "show", "--json")
	var shown map[string]struct{ Source string }
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != exitOK {
		t.Fatalf("exit %d, error %v: %s", code, err, words)
	}
	var flags []string
	for _, c := range commandsForTest() {
		if c.CommandPath() == "aeemesh worker" {
			flagsOf(c, func(f *pflag.Flag) { flags = append(flags, f.Name) })
		}
	}
	if len(flags) < 60 {
		t.Fatalf("worker has flags %v", flags)
	}
	for _, name := range flags {
		key := strings.ReplaceAll(name, "-", "_")
		if slices.Contains(secretFlags, name) {
			key += "_file"
		}
		want := !slices.Contains(notInFile, name)
		if _, there := schema.Properties["worker"].Properties[key]; there != want {
			t.Errorf("the schema has %s: %v", key, there)
		}
		if _, there := shown[key]; there != want {
			t.Errorf("config show has %s: %v", key, there)
		}
	}
	if _, there := schema.Properties["mcp_servers"]; !there {
		t.Errorf("the schema lacks the other sections")
	}
	for section, want := range map[string][]string{
		"budget": {"run_tokens", "run_usd", "tree_tokens", "tree_usd"}, "tree": {"max_depth", "max_iterations", "max_tasks"},
	} {
		if got := slices.Sorted(maps.Keys(schema.Properties[section].Properties)); !slices.Equal(got, want) {
			t.Errorf("section %s has the members %v in the schema, want %v", section, got, want)
		}
	}
}

// What takes env:NAME or file:PATH may be given the secret itself by mistake, also of a variable.
func TestConfigShowShowsReferencesToSecretsOnly(t *testing.T) {
	t.Parallel()
	show := func(variable string, args ...string) map[string]struct{ Value, Source string } {
		t.Helper()
		var out, words bytes.Buffer
		code := run(t.Context(), append([]string{"config", "show", "--json"}, args...), strings.NewReader(""), &out, &words, func(name string) string {
			if name == "AEEMESH_STATE_KEY" {
				return variable
			}
			return ""
		})
		if strings.Contains(out.String()+words.String(), "hunter2") {
			t.Errorf("%v: a secret is shown", args)
		}
		var shown map[string]struct{ Value, Source string }
		if err := json.Unmarshal(out.Bytes(), &shown); err != nil || code != exitOK {
			t.Fatalf("exit %d, error %v: %s", code, err, &words)
		}
		return shown
	}
	for _, c := range []struct {
		setting, variable, want string
		args                    []string
	}{
		{"state_key", "", "(not shown), file:/run/key, env:KEY", []string{"--state-key", "hunter2", "--state-key", "file:/run/key", "--state-key", "env:KEY"}},
		{"state_key", "hunter2", "(not shown)", nil},
		{"state_key", "env:KEY", "env:KEY", nil},
		{"handoff_bearer", "", "(not shown)", []string{"--handoff-bearer", "hunter2"}},
		{"handoff_bearer", "", "file:/run/bearer", []string{"--handoff-bearer", "file:/run/bearer"}},
		{"handoff_bearer", "", "", nil},
	} {
		if got := show(c.variable, c.args...)[c.setting].Value; got != c.want {
			t.Errorf("%s %v: %q, want %q", c.setting, c.args, got, c.want)
		}
	}
}

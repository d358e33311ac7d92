package main

import (
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

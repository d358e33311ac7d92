package aaif

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
)

func TestCorpusValidIsAccepted(t *testing.T) {
	for name, data := range corpusFiles(t, "valid") {
		t.Run(name, func(t *testing.T) {
			doc := mustParse(t, data, Options{Name: name})
			for _, p := range doc.Lint() {
				if p.Severity != SeverityWarning {
					t.Errorf("lint: %v", p)
				}
			}
			want := KindAgent
			if name == "stateful-checkpoint.json" {
				want = KindState
			}
			if doc.Kind() != want {
				t.Errorf("kind %s, want %s", doc.Kind(), want)
			}
		})
	}
}

func TestCorpusInvalidIsRejectedForItsReason(t *testing.T) {
	reasons := map[string]struct {
		pointer string
		rule    Rule
	}{
		"bad-agent-status.json":       {"/status", RuleEnum},
		"bad-condition-lang.json":     {"/agent/orchestration/subagents/0/when/lang", RuleEnum},
		"bad-routing-strategy.json":   {"/agent/model/routing_strategy", RuleEnum},
		"bad-safety-level.json":       {"/agent/compliance/safety_level", RuleEnum},
		"bad-tool-protocol.json":      {"/agent/tools/0/protocol", RuleEnum},
		"condition-missing-expr.json": {"/agent/events/triggers/0/filter", RuleRequired},
		"custom-provider-no-id.json":  {"/agent/model", RuleRequired},
		"missing-goal.json":           {"/agent", RuleRequired},
		"missing-name.json":           {"/agent", RuleRequired},
		"state-missing-agent-id.json": {"", RuleRequired},
		"unknown-root-key.json":       {"/metadata", RuleUnknownField},
	}
	for name, data := range corpusFiles(t, "invalid") {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(data, Options{Name: name})
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("accepted, or not an *Error: %v", err)
			}
			want, ok := reasons[name]
			if !ok {
				t.Fatalf("no reason noted for this file; we say %v", e)
			}
			if len(e.Problems) != 1 || e.Problems[0].Pointer != want.pointer || e.Problems[0].Rule != want.rule || e.Problems[0].Line == 0 {
				t.Errorf("got %+v, want %+v and a line", e.Problems, want)
			}
		})
	}
}

func TestRegistriesAreCurrent(t *testing.T) {
	dir := filepath.Join(corpus(t), "registries")
	standard := func(file string) []string {
		var registry struct {
			Entries []struct {
				ID     string `json:"id"`
				Status string `json:"status"`
			} `json:"entries"`
		}
		if err := json.Unmarshal(readAll(t, filepath.Join(dir, file))[file], &registry); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, e := range registry.Entries {
			if e.Status == "standard" {
				ids = append(ids, e.ID)
			} else if file != "providers.json" || !provisionalProvider(e.ID) {
				t.Errorf("%s: %s is %s; we do not know it", file, e.ID, e.Status)
			}
		}
		slices.Sort(ids)
		return ids
	}
	sorted := func(ids []string) []string { slices.Sort(ids); return ids }
	diff(t, "providers", sorted(stringsOf(Providers())), standard("providers.json"))
	diff(t, "capabilities", sorted(Capabilities()), standard("capabilities.json"))
	diff(t, "tool protocols", sorted(stringsOf(Protocols())), standard("tool-protocols.json"))
	diff(t, "vault providers", sorted(stringsOf(VaultProviders())), standard("vault-providers.json"))
	diff(t, "condition languages", sorted(enumOf(t, "condition", "lang")), standard("condition-languages.json"))
	diff(t, "memory backends", sorted(enumOf(t, "memory", "backend")), standard("memory-backends.json"))
}

// enumOf returns the words that the schema of agents allows for a member of one of its definitions.
func enumOf(t *testing.T, definition, member string) []string {
	t.Helper()
	var schema struct {
		Defs map[string]struct {
			Properties map[string]struct {
				Enum []string `json:"enum"`
			} `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(SchemaJSON(KindAgent), &schema); err != nil {
		t.Fatal(err)
	}
	return schema.Defs[definition].Properties[member].Enum
}

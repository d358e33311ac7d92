package models

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model/route"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// command runs "aeemesh models" with the files of a folder and the given environment.
func command(env map[string]string, asJSON bool, args ...string) (string, error) {
	var out, words natstest.Buffer
	look := func(name string) string { return env[name] }
	a := &session.App{Env: look, Stdin: strings.NewReader(""), Term: term.New(&out, &words, look), ByEnv: map[string]bool{}}
	a.Term.JSON = asJSON
	c := Command(a)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

// file writes a file, and returns its name.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// operatorWith returns the file of an operator who has a catalogue.
func operatorWith(t *testing.T, catalogue string) string {
	t.Helper()
	return file(t, "operator.yaml", "models: {catalog: "+file(t, "models.json", catalogue)+"}\n")
}

const catalogue = `{"date": "2026-11-01", "models": [
  {"provider": "lab", "model": "deep-*", "context_tokens": 200000, "max_output_tokens": 8192, "input_usd_per_1k": 0.002, "output_usd_per_1k": 0.01,
   "cached_input_usd_per_1k": 0.0002, "cache_write_usd_per_1k": 0.0025, "long_input": {"above_tokens": 100000, "input_usd_per_1k": 0.004, "output_usd_per_1k": 0.015},
   "regions": ["EU", "CH"], "quality": 7.5},
  {"provider": "lab", "model": "free", "input_usd_per_1k": 0, "output_usd_per_1k": 0}]}`

// All facts of a model are shown, those that are unknown are not, and free is a price.
func TestShowPrintsWhatIsKnown(t *testing.T) {
	t.Parallel()
	config := operatorWith(t, catalogue)
	for name, want := range map[string]string{
		"lab/deep-2": `lab/deep-2
  entry            lab/deep-*, as of 2026-11-01
  context window   200000
  longest answer   8192
  input            0.002 USD a thousand tokens
  output           0.01 USD a thousand tokens
  cached input     0.0002 USD a thousand tokens
  cache write      0.0025 USD a thousand tokens
  long input       above 100000 tokens: 0.004 input, 0.015 output
  regions          EU, CH
  quality          7.5
`,
		"lab/free": `lab/free
  entry            lab/free, as of 2026-11-01
  input            0 USD a thousand tokens
  output           0 USD a thousand tokens
`,
	} {
		got, err := command(nil, false, "show", name, "--config", config)
		if err != nil || !strings.HasSuffix(want, got) { // the name is a heading, on stderr
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}

// The operator's catalogue comes first. What its entries say wins over built-in ones, which say the rest.
func TestTheOperatorsCatalogueComesFirst(t *testing.T) {
	t.Parallel()
	config := operatorWith(t, `{"date": "2026-11-01", "models": [{"provider": "openai", "model": "gpt-4o", "context_tokens": 7}]}`)
	got, err := command(nil, true, "list", "--config", config)
	first, rest, _ := strings.Cut(got, "\n")
	if err != nil || !strings.HasPrefix(first, `{"provider":"openai","model":"gpt-4o","context_tokens":7,"max_output_tokens":`) || strings.Contains(rest, `"provider":"openai","model":"gpt-4o",`) || strings.Count(rest, "\n") != len(route.Builtin().Entries)-1 {
		t.Errorf("%v: %s", err, first)
	}
	if got, err = command(nil, true, "show", "openai/gpt-4o", "--config", config); err != nil || !strings.Contains(got, `"context_tokens":7`) {
		t.Errorf("%v: %s", err, got)
	}
}

// Each model that the shell completes is one that "show" knows.
func TestCompletedModelsAreKnown(t *testing.T) {
	t.Parallel()
	names, _ := completeModels(nil, nil, nil, "")
	if len(names) < 20 {
		t.Errorf("only %d models are completed", len(names))
	}
	for _, name := range names {
		provider, model, _ := strings.Cut(name, "/")
		if _, ok := route.Builtin().Find(provider, model); !ok || strings.Contains(name, "*") {
			t.Errorf("%s is completed and not known", name)
		}
	}
	if more, _ := completeModels(nil, nil, names[:1], ""); len(more) > 0 {
		t.Errorf("after the one argument: %q", more)
	}
}

// In JSON a route that can be used has its order, and any other the reason; no key is printed.
func TestRoutesInJSON(t *testing.T) {
	t.Parallel()
	doc := file(t, "agent.yaml", `sc_standard: SC-006
agent:
  name: Routed
  goal: Route.
  model:
    provider: openai
    preferred: gpt-4o
    fallbacks:
      - {provider: anthropic, model: claude-sonnet-4-5}
      - {provider: openai, model: gpt-4o-mini}
`)
	got, err := command(map[string]string{"OPENAI_API_KEY": "sk-secret"}, true, "routes", doc)
	if err != nil || strings.Contains(got, "sk-secret") {
		t.Fatalf("%v: %s", err, got)
	}
	var orders []int
	for line := range strings.Lines(got) {
		var r struct {
			Order   int
			Key     string
			HasKey  bool `json:"has_key"`
			Skipped string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if orders = append(orders, r.Order); (r.Order == 0) != (r.Skipped != "") || r.HasKey != (r.Skipped == "") || !strings.HasSuffix(r.Key, "_API_KEY") {
			t.Errorf("%s", line)
		}
	}
	if len(orders) != 3 || orders[0]+orders[1]+orders[2] != 3 {
		t.Errorf("orders %v", orders)
	}
	var usage *outcome.UsageError
	if _, err := command(nil, false, "routes", doc, "--context-tokens", "-1"); !errors.As(err, &usage) {
		t.Errorf("a negative window: %v", err)
	}
}

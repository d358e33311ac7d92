package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// toolRun lets a model call the tool look of a document twice, with these fields of the
// tool, and returns how often it was made, and what the model was told.
func toolRun(t *testing.T, protocol, fields, result string, counters agents.Counters) (made int, told []string) {
	t.Helper()
	var mu sync.Mutex
	look := tool.Raw(tool.Definition{Name: "look", Description: "Looks."}, func(context.Context, json.RawMessage) (json.RawMessage, error) {
		mu.Lock()
		defer mu.Unlock()
		made++
		return json.RawMessage(result), nil
	})
	opts := agents.Options{Counters: counters}
	if protocol == "function" {
		opts.Tools = new(tool.Registry)
		if err := opts.Tools.Add(look); err != nil {
			t.Fatal(err)
		}
	} else {
		opts.Offer = aaif.Offer{Capabilities: aaif.SetOf(aaif.CapToolHTTP)}
		opts.Open = func(*aaif.Tool) (tool.Source, error) { return tool.Static(look), nil }
		fields += `, "protocol": "http", "endpoint": "https://x.example/look"`
	}
	ask := `{"of": "things"}`
	w, entity, fake := hostFake(t, `"tools": [{"name": "look", "description": "Looks."`+fields+`}]`, opts,
		calls(call("1", "look", ask)), calls(call("2", "look", ask)), says("done"))
	if got := w.send(entity, `{"text":"go"}`, sending{}); got.payload != `{"text":"done"}` {
		t.Errorf("got %+v", got)
	}
	requests := fake.Requests()
	for _, m := range requests[len(requests)-1].Messages {
		if m.Role == model.RoleTool {
			told = append(told, m.Content)
		}
	}
	return made, told
}

// counting is Counters that remember what they were asked for.
type counting struct {
	mu    sync.Mutex
	kinds []string
}

func (c *counting) Add(_ context.Context, n int64, _, kind string, ids ...string) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && len(ids) > 1 {
		c.kinds = append(c.kinds, fmt.Sprintf("%s %s %d", kind, ids[0], n))
	}
	return n, nil
}

// Mutations M5, M5b and M6 of the traceability review: what a document says of a tool
// reaches the tool.
func TestFieldsOfAToolHaveTheirEffect(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"function", "http"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			const right, wrong = `{"n":1}`, `{"n":"one"}`
			made, told := toolRun(t, protocol, ``, wrong, nil)
			if want := []string{wrong, wrong}; made != 2 || !slices.Equal(told, want) {
				t.Errorf("without fields: made %d times, told %q", made, told)
			}
			made, told = toolRun(t, protocol, `, "cache_ttl_seconds": 60`, right, nil)
			if want := []string{right, right}; made != 1 || !slices.Equal(told, want) {
				t.Errorf("cache_ttl_seconds: made %d times, told %q", made, told)
			}
			made, told = toolRun(t, protocol, `, "timeout_seconds": 1, "rate_limit": {"requests_per_minute": 1}`, right, nil)
			if made != 1 || len(told) != 2 || told[0] != right || told[1] == right {
				t.Errorf("rate_limit: made %d times, told %q", made, told)
			}
			c := new(counting)
			toolRun(t, protocol, `, "rate_limit": {"requests_per_minute": 100, "tokens_per_minute": 100000}`, right, c)
			for _, kind := range []string{"calls look 1", "tokens look"} {
				if !slices.ContainsFunc(c.kinds, func(k string) bool { return strings.HasPrefix(k, kind) }) {
					t.Errorf("rate_limit: %s was not counted: %q", kind, c.kinds)
				}
			}
			if protocol != "function" {
				return // its source holds its results to the schema: see package rest
			}
			const schema = `, "output_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}`
			made, told = toolRun(t, protocol, schema, right, nil)
			if want := []string{right, right}; made != 2 || !slices.Equal(told, want) {
				t.Errorf("output_schema: made %d times, told %q", made, told)
			}
			_, told = toolRun(t, protocol, schema, wrong, nil)
			if len(told) != 2 || strings.Contains(told[0], "one") || !strings.Contains(told[0], "/n") {
				t.Errorf("output_schema that does not fit: told %q", told)
			}
		})
	}
}

package agents_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A document has no member for the schema of errors: the operator's folder may add
// it to the agent's own intent, whose other schemas are the document's.
func TestTheFolderAddsTheErrorSchemaOfTheAgentsOwnIntent(t *testing.T) {
	t.Parallel()
	const own = "agent.test_agent.run"
	folder := func(schemas map[string]string) string {
		dir := t.TempDir()
		for variant, schema := range schemas {
			if err := os.WriteFile(filepath.Join(dir, own+"."+variant+".schema.json"), []byte(schema), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	const block = `"io": {"input_schema": {"type":"object","required":["text"]}}`
	handler := mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return nil, &envelope.Error{Code: "BROKE", Message: "no money"}
	})
	a := newAgent(t, doc(t, block), agents.Options{Handler: handler, IntentsDir: folder(map[string]string{"error": `{"properties":{"code":{"enum":["NO_FUNDS"]}}}`})})
	w := newWorld(t)
	w.host(a)
	for payload, want := range map[string]envelope.Code{`{"text":"hi"}`: envelope.CodeOutputSchema, `{}`: envelope.CodeInputSchema} {
		if got := w.send(a.Entity, payload, sending{intent: own}); got.err == nil || got.err.Code != want {
			t.Errorf("%s: got %v, want %s", payload, got.err, want)
		}
	}
	for what, c := range map[string]struct {
		schemas map[string]string
		want    string
	}{
		"an input":         {map[string]string{"task": `{}`, "error": `{}`}, own + ": its input and output schemas are the document's (io); only " + own + ".error.schema.json may be here"},
		"an output":        {map[string]string{"result": `{}`}, "only " + own + ".error.schema.json may be here"},
		"an invalid one":   {map[string]string{"error": `{"type":7}`}, own},
		"one of no object": {map[string]string{"error": `{"type":"array"}`}, "no object fits it"},
	} {
		dir := folder(c.schemas)
		if _, err := agents.New(doc(t, block), agents.Options{Handler: handler, IntentsDir: dir}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

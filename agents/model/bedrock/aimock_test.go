package bedrock_test

import (
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/aimocktest"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

func TestAgainstAimock(t *testing.T) {
	t.Parallel()
	aimocktest.Run(t, aimocktest.Start(t), aimocktest.Options{
		Model:      "anthropic.claude-sonnet-4-5-20250929-v1:0",
		ExtendedAt: []string{"additionalModelRequestFields"},
		Schema: func(t *testing.T, body []byte) {
			var got wireRequest
			if err := json.Unmarshal(body, &got); err != nil || got.OutputConfig == nil {
				t.Fatalf("no output config: %v, %s", err, body)
			}
			const want = `{"type":"object","properties":{"city":{"type":"string"},"n":{"type":"integer"}},"required":["city","n"],"additionalProperties":false}`
			if f := got.OutputConfig.TextFormat; f.Type != "json_schema" || f.Structure.JSONSchema.Name != "place" || !modeltest.SameJSON(t, f.Structure.JSONSchema.Schema, want) {
				t.Errorf("the schema did not arrive: %s", body)
			}
		},
	}, func(t *testing.T, s *aimocktest.Stage) model.Model { return newModel(t, s.URL) })
}

package anthropic_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/aimocktest"
)

func TestAgainstAimock(t *testing.T) {
	t.Parallel()
	aimocktest.Run(t, aimocktest.Start(t), aimocktest.Options{
		Model:    "claude-sonnet-4-5",
		Extended: json.RawMessage(`{"vendor.knob*":{"x":[1,2.50,9007199254740993],"on":true,"none":null},"thinking":{"type":"enabled","budget_tokens":5000},"metadata":{"user_id":"<&>"}}`),
		Schema: func(t *testing.T, body []byte) {
			var got struct {
				OutputConfig struct{ Format struct{ Schema any } } `json:"output_config"`
			}
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			var want any
			if err := json.Unmarshal([]byte(`{"type":"object","properties":{"city":{"type":"string"},"n":{"type":"integer"}},"required":["city","n"],"additionalProperties":false}`), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.OutputConfig.Format.Schema, want) {
				t.Errorf("the schema did not arrive: %s", body)
			}
		},
	}, func(t *testing.T, s *aimocktest.Stage) model.Model { return newModel(t, s.URL) })
}

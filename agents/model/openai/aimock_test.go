package openai_test

import (
	"bytes"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/aimocktest"
	"github.com/aeemesh/aeemesh/agents/model/openai"
)

// Every provider, at the path that it has.
func TestAgainstAimock(t *testing.T) {
	t.Parallel()
	paths := map[string]string{
		"openai": "/v1", "azure_openai": "", "mistral": "/v1", "groq": "/openai/v1", "ollama": "/v1", "huggingface": "/v1", "together": "/v1",
		"fireworks": "/inference/v1", "deepseek": "/v1", "xai": "/v1", "openrouter": "/api/v1", "cohere": "/compatibility/v1", "custom": "/proxy/v1",
	}
	server := aimocktest.Start(t)
	for _, p := range openai.Providers() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			var o aimocktest.Options
			if p.Name == "deepseek" {
				o.Schema = func(t *testing.T, body []byte) {
					if !bytes.Contains(body, []byte(`"response_format":{"type":"json_object"}`)) {
						t.Errorf("JSON mode was not asked for: %s", body)
					}
				}
			}
			aimocktest.Run(t, server, o, func(t *testing.T, s *aimocktest.Stage) model.Model {
				return as(t, p.Name, s.URL, func(c *openai.Config) { c.BaseURL = s.URL + paths[p.Name] })
			})
		})
	}
}

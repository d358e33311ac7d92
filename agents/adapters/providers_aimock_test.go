package adapters

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/aimocktest"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

// Every provider name of the registry works from a document: at the endpoint that the operator
// says, in the provider's protocol, with its key in the right header, and with the document's
// extended parameters.
func TestEveryProviderAgainstAimock(t *testing.T) {
	t.Parallel()
	server := aimocktest.Start(t)
	type target struct {
		config string // beside base_url
		path   string // of the base URL
		key    string // variable
		header string // how the request carries the key
		uri    string // where the request goes
		at     string // the path to the extended parameters
	}
	chat := func(path, key string) target {
		return target{path: path, key: key, header: "Authorization: Bearer k-1234567890", uri: path + "/chat/completions"}
	}
	targets := map[aaif.Provider]target{
		aaif.ProviderOpenAI:      chat("/v1", "OPENAI_API_KEY"),
		aaif.ProviderMistral:     chat("/v1", "MISTRAL_API_KEY"),
		aaif.ProviderCohere:      chat("/compatibility/v1", "COHERE_API_KEY"),
		aaif.ProviderGroq:        chat("/openai/v1", "GROQ_API_KEY"),
		aaif.ProviderOllama:      chat("/v1", "OLLAMA_API_KEY"),
		aaif.ProviderHuggingFace: chat("/v1", "HF_TOKEN"),
		aaif.ProviderTogether:    chat("/v1", "TOGETHER_API_KEY"),
		aaif.ProviderFireworks:   chat("/inference/v1", "FIREWORKS_API_KEY"),
		aaif.ProviderDeepSeek:    chat("/v1", "DEEPSEEK_API_KEY"),
		aaif.ProviderXAI:         chat("/v1", "XAI_API_KEY"),
		aaif.ProviderOpenRouter:  chat("/api/v1", "OPENROUTER_API_KEY"),
		aaif.ProviderCustom:      chat("/gateway/v1", "LAB_API_KEY"),
		aaif.ProviderAzureOpenAI: {key: "AZURE_OPENAI_API_KEY", header: "Api-Key: k-1234567890", uri: "/openai/deployments/some-model/chat/completions?api-version=2024-10-21"},
		aaif.ProviderAnthropic:   {key: "ANTHROPIC_API_KEY", header: "X-Api-Key: k-1234567890", uri: "/v1/messages"},
		aaif.ProviderGoogle:      {key: "GEMINI_API_KEY", header: "X-Goog-Api-Key: k-1234567890", uri: "/v1beta/models/some-model:generateContent"},
		aaif.ProviderVertexAI: {config: `, "project": "p-1", "location": "europe-west4", "key": {"env": "VERTEX_KEY"}`, path: "/v1", key: "VERTEX_KEY", header: "X-Goog-Api-Key: k-1234567890",
			uri: "/v1/projects/p-1/locations/europe-west4/publishers/google/models/some-model:generateContent"},
		aaif.ProviderBedrock: {config: `, "region": "eu-central-1", "key": {"env": "BEDROCK_KEY"}`, key: "BEDROCK_KEY", uri: "/model/some-model/converse", at: "additionalModelRequestFields"},
	}
	for _, name := range aaif.Providers() {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			to, ok := targets[name]
			if !ok {
				t.Fatalf("%s is not proved", name)
			}
			stage := server.Stage(t, modeltest.Turn{Text: "hello from " + string(name)})
			key, id, configured := "k-1234567890", "", string(name)
			switch name {
			case aaif.ProviderBedrock:
				key = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMIk7MDENGbPxRfiCYEXAMPLEKEY1234"
			case aaif.ProviderCustom:
				id, configured = `"provider_id": "lab", `, "lab"
			}
			s := newSet(t, fmt.Sprintf(`{"models": {"providers": {%q: {"base_url": %q%s}}}}`, configured, stage.URL+to.path, to.config), env(to.key, key))
			def := definition(t, fmt.Sprintf(`"provider": %q, %s"preferred": "some-model", "params": {"extended": {"vendor_knob": {"x": 2.50}}}`, name, id))
			m, _, err := s.Model(def, agents.Options{Secret: env(to.key, key)})
			if err != nil {
				t.Fatal(err)
			}
			req := hello()
			req.Model, req.Params.Extended = "some-model", def.Agent.Model.Params.Extended
			res, err := m.Generate(t.Context(), req, nil)
			if err != nil || res.Message.Content != "hello from "+string(name) || res.Provider != configured {
				t.Fatalf("response %+v, error %v", res, err)
			}
			got := stage.Requests()[0]
			if header, value, _ := strings.Cut(to.header, ": "); got.URI != to.uri || header != "" && got.Header.Get(header) != value {
				t.Errorf("asked %s with %v, want %s with %s", got.URI, got.Header, to.uri, to.header)
			}
			if body := strings.ReplaceAll(string(got.Body), " ", ""); !strings.Contains(body, `"vendor_knob":{"x":2.50}`) || !strings.Contains(body, to.at) {
				t.Errorf("the extended parameters arrived as %s", got.Body)
			}
		})
	}
}

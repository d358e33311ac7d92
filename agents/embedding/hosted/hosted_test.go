package hosted_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/embedding"
	"github.com/aeemesh/aeemesh/agents/embedding/embeddingtest"
	"github.com/aeemesh/aeemesh/agents/embedding/hosted"
)

func all(texts []string) (out [][]float32) {
	for _, t := range texts {
		out = append(out, embeddingtest.Letters(t))
	}
	return out
}

// service answers as the models do, and refuses what they refuse.
func service(_ context.Context, model string, body []byte) ([]byte, error) {
	var ask struct {
		InputText  string
		Texts      []string
		Input_Type string
		Instances  []struct{ Content, Task_type string }
	}
	if err := json.Unmarshal(body, &ask); err != nil {
		return nil, err
	}
	texts := slices.Concat(ask.Texts, nil)
	if ask.InputText != "" {
		texts = append(texts, ask.InputText)
	}
	for _, i := range ask.Instances {
		texts = append(texts, i.Content)
		if i.Task_type != "CLUSTERING" {
			return nil, errors.New("no task type")
		}
	}
	for _, t := range texts {
		if strings.TrimSpace(t) == "" || len(t) > 50_000 || strings.Contains(model, "cohere") && len(t) > 2048 {
			return nil, errors.New("a text is empty or too long")
		}
	}
	switch {
	case strings.Contains(model, "titan"):
		return json.Marshal(map[string]any{"embedding": embeddingtest.Letters(ask.InputText), "inputTextTokenCount": 3})
	case strings.Contains(model, "cohere") && ask.Input_Type == "clustering" && len(texts) <= 96:
		return json.Marshal(map[string]any{"embeddings": map[string]any{"float": all(texts)}, "response_type": "embeddings_by_type"})
	case len(texts) == 1 || !strings.Contains(model, "gemini") && len(texts) <= 250:
		var list []any
		for _, v := range all(texts) {
			list = append(list, map[string]any{"embeddings": map[string]any{"values": v, "statistics": map[string]any{"token_count": 2}}})
		}
		return json.Marshal(map[string]any{"predictions": list})
	}
	return nil, errors.New("refused")
}

func open(t testing.TB, model string, call hosted.Call) embedding.Embedder {
	make := hosted.Bedrock
	if strings.Contains(model, "embedding-") {
		make = hosted.Vertex
	}
	e, err := make("cloud", model, call)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var models = []string{"amazon.titan-embed-text-v2:0", "us.cohere.embed-v4:0", "gemini-embedding-001", "text-embedding-005"}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, m := range models {
		t.Run(m, func(t *testing.T) { embeddingtest.Run(t, open(t, m, service), 1) })
	}
}

// Vectors without a type are those of older models.
func TestCohereWithoutTypes(t *testing.T) {
	t.Parallel()
	e := open(t, "cohere.embed-multilingual-v3", func(context.Context, string, []byte) ([]byte, error) {
		return []byte(`{"embeddings":[[3,4],[0,1]],"response_type":"embeddings_floats"}`), nil
	})
	if got, err := e.Embed(t.Context(), []string{"a", "b"}); err != nil || got[0][0] != 0.6 || got[1][1] != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAnswersAreChecked(t *testing.T) {
	t.Parallel()
	for _, m := range models {
		for _, answer := range []string{`<html>`, `{}`, `[]`, `null`, `{"embedding":"x"}`, `{"embedding":[0,0]}`, `{"embeddings":{"float":[[1]]}}`, `{"embeddings":{"float":[[1],[1,2]]}}`,
			`{"predictions":[{"embeddings":{"values":[0]}}]}`, `{"predictions":[{},{}]}`, `{"embeddings":7}`} {
			e := open(t, m, func(context.Context, string, []byte) ([]byte, error) { return []byte(answer), nil })
			if v, err := e.Embed(t.Context(), []string{"a", "b"}); err == nil {
				t.Errorf("%s: %s: %v", m, answer, v)
			}
		}
	}
}

// One failure ends all requests, and is the error.
func TestAFailureEndsAll(t *testing.T) {
	t.Parallel()
	failure := errors.New("no such model")
	var calls atomic.Int32
	e := open(t, models[0], func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		if calls.Add(1) == 3 {
			return nil, failure
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := e.Embed(ctx, make([]string, 100)); !errors.Is(err, failure) || calls.Load() > 8 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

func TestModelsAreKnown(t *testing.T) {
	t.Parallel()
	if _, err := hosted.Bedrock("bedrock", "anthropic.claude-opus-5", service); err == nil || !strings.Contains(err.Error(), "amazon.titan-embed-text, cohere.embed") {
		t.Errorf("%v", err)
	}
	if _, err := hosted.Vertex("vertex_ai", "gemini-3-pro", service); err == nil {
		t.Error("no error")
	}
	if _, err := hosted.Vertex("vertex_ai", "text-embedding-005", nil); err == nil {
		t.Error("no error")
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(0, []byte(`{"embedding":[1,2]}`))
	f.Add(1, []byte(`{"embeddings":{"float":[[1,2]]}}`))
	f.Add(1, []byte(`{"embeddings":[[1e39,2]]}`))
	f.Add(2, []byte(`{"predictions":[{"embeddings":{"values":[1,2]}}]}`))
	f.Fuzz(func(t *testing.T, model int, answer []byte) {
		e := open(t, models[uint(model)%uint(len(models))], func(context.Context, string, []byte) ([]byte, error) { return answer, nil })
		if v, err := e.Embed(t.Context(), []string{"a"}); err == nil && (len(v) != 1 || len(v[0]) == 0) {
			t.Fatalf("%v", v)
		}
	})
}

package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aeemesh/aeemesh/agents/embedding"
	"github.com/aeemesh/aeemesh/agents/embedding/embeddingtest"
	"github.com/aeemesh/aeemesh/agents/embedding/openai"
	"github.com/aeemesh/aeemesh/agents/model"
)

// serve is a server that answers in reverse order.
func serve(t *testing.T, status int) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct{ Input []string }
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.URL.Path != "/v1/embeddings" || r.Header.Get("Authorization") != "Bearer k" || len(req.Input) > 64 {
			t.Errorf("%s: %v, %d texts", r.URL, err, len(req.Input))
		}
		if status != 200 {
			w.WriteHeader(status)
			return
		}
		var data []any
		for i := len(req.Input) - 1; i >= 0; i-- {
			data = append(data, map[string]any{"index": i, "embedding": embeddingtest.Letters(req.Input[i])})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	t.Cleanup(s.Close)
	return s
}

func open(t *testing.T, s *httptest.Server) embedding.Embedder {
	e, err := openai.New(openai.Config{Provider: "p", Model: "m", BaseURL: s.URL + "/v1", Key: func(context.Context) (string, error) { return "k", nil }})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestConformance(t *testing.T) {
	t.Parallel()
	embeddingtest.Run(t, open(t, serve(t, 200)), 1)
}

func TestStatusesAreErrorsOfModels(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]model.Kind{401: model.ErrAuth, 429: model.ErrRateLimited, 503: model.ErrUnavailable, 400: model.ErrBadRequest, 413: model.ErrContextTooLong} {
		if _, err := open(t, serve(t, status)).Embed(t.Context(), []string{"a"}); !errors.Is(err, want) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// An answer that is not what was asked for is an error, and never vectors of other texts.
func TestAnswersAreChecked(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"no JSON":           `<html>`,
		"nothing":           `{}`,
		"one too few":       `{"data":[{"index":0,"embedding":[1,2]}]}`,
		"one twice":         `{"data":[{"index":0,"embedding":[1,2]},{"index":0,"embedding":[1,3]}]}`,
		"an index beyond":   `{"data":[{"index":0,"embedding":[1,2]},{"index":2,"embedding":[1,3]}]}`,
		"other dimensions":  `{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[1]}]}`,
		"without direction": `{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[0,0]}]}`,
		"no numbers":        `{"data":[{"index":0,"embedding":["x"]},{"index":1,"embedding":[0,0]}]}`,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
		if v, err := open(t, s).Embed(t.Context(), []string{"a", "b"}); err == nil {
			t.Errorf("%s: %v", name, v)
		}
		s.Close()
	}
}

func TestConfigsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []openai.Config{{}, {Provider: "p", Model: "m", BaseURL: "ftp://x"}, {Provider: "p", BaseURL: "https://x"}, {Provider: "p", Model: "m", BaseURL: "https://u:p@x"},
		{Provider: "p", Model: "m", BaseURL: "https://x", Batch: -1}} {
		if _, err := openai.New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"data":[{"index":1,"embedding":[1,2]},{"index":0,"embedding":[0.5,1e9]}]}`))
	f.Add([]byte(`{"data":[{"index":0,"embedding":[1e39,2]},{"index":0,"embedding":null}]}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		e, err := openai.New(openai.Config{Provider: "p", Model: "m", BaseURL: "http://h.invalid/v1", HTTPClient: &http.Client{Transport: answers(answer)}})
		if err != nil {
			t.Fatal(err)
		}
		vectors, err := e.Embed(t.Context(), []string{"a", "b"})
		if err == nil && (len(vectors) != 2 || len(vectors[0]) != len(vectors[1])) {
			t.Fatalf("%v", vectors)
		}
	})
}

// answers is a network that always answers with these bytes.
type answers []byte

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a)), Request: r}, nil
}

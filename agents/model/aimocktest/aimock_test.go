package aimocktest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/aimocktest"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

// Each family has the path that the package comment names, and a stage plays only its own turns.
func TestFamiliesAreWhereTheDocsSay(t *testing.T) {
	t.Parallel()
	s := aimocktest.Start(t)
	const chat = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	const gemini = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
	for path, body := range map[string]string{
		"/v1/chat/completions": chat,
		"/openai/deployments/d/chat/completions?api-version=2024-10-21": chat,
		"/api/v1/chat/completions":                                      chat,
		"/compatibility/v1/chat/completions":                            chat,
		"/inference/v1/chat/completions":                                chat,
		"/api/chat":                                                     `{"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}]}`,
		"/v2/chat":                                                      chat,
		"/v1/messages":                                                  `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
		"/v1beta/models/m:generateContent":                              gemini,
		"/v1/projects/p/locations/l/publishers/google/models/m:generateContent": gemini,
		"/model/m/converse":         `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`,
		"/model/anthropic.m/invoke": `{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
	} {
		t.Run(strings.NewReplacer("/", "_", ":", "_").Replace(path), func(t *testing.T) {
			t.Parallel()
			stage := s.Stage(t, modeltest.Turn{Text: "you asked at " + path})
			status, got := post(t, stage.URL+path, body)
			if status != 200 || !strings.Contains(got, "you asked at "+path) {
				t.Errorf("status %d: %s", status, got)
			}
			requests := stage.Requests()
			if len(requests) != 1 || string(requests[0].Body) != body || requests[0].URI != path || requests[0].Header.Get("X-AIMock-Context") != "" {
				t.Errorf("kept %+v", requests)
			}
			other := s.Stage(t, modeltest.Turn{Fail: &model.Error{Kind: model.ErrRateLimited}})
			if status, got := post(t, other.URL+path, body); status != 429 {
				t.Errorf("another stage answers %d: %s", status, got)
			}
			if status, got := post(t, s.Stage(t).URL+path, body); status < 400 {
				t.Errorf("a stage without turns answers %d: %s", status, got)
			}
		})
	}
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(got)
}

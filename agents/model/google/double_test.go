package google_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/google"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

const testKey = "AIzaTest4f9a8b7c6d5e4f3a2b1c0d9e8f7a6"

// wireRequest is the part of a request that the double reads.
type wireRequest struct {
	SystemInstruction *wireContent
	Contents          []wireContent
	Tools             []struct{ FunctionDeclarations []struct{ Name string } }
}

type wireContent struct {
	Role  string
	Parts []map[string]json.RawMessage
}

// check refuses what the real API would refuse.
func (r *wireRequest) check() error {
	if len(r.Contents) == 0 {
		return fmt.Errorf("contents is not specified")
	}
	open := 0 // calls of the turn before
	for i, c := range r.Contents {
		responses, calls := 0, 0
		if c.Role != "user" && c.Role != "model" || len(c.Parts) == 0 {
			return fmt.Errorf("contents[%d]: role %q with %d parts", i, c.Role, len(c.Parts))
		}
		for j, p := range c.Parts {
			kinds := 0
			for _, name := range []string{"text", "functionCall", "functionResponse"} {
				if p[name] != nil {
					kinds++
				}
			}
			if kinds != 1 || string(p["text"]) == `""` {
				return fmt.Errorf("contents[%d].parts[%d]: data must have one initialized field: %v", i, j, p)
			}
			if p["functionCall"] != nil {
				calls++
			}
			if raw := p["functionResponse"]; raw != nil {
				responses++
				var fr struct {
					Name     string
					Response map[string]any
				}
				if json.Unmarshal(raw, &fr) != nil || fr.Name == "" || fr.Response == nil {
					return fmt.Errorf("contents[%d].parts[%d]: function response %s", i, j, raw)
				}
			}
		}
		if responses != open {
			return fmt.Errorf("contents[%d]: %d function responses to %d function calls", i, responses, open)
		}
		if open = 0; c.Role == "model" {
			open = calls
		}
	}
	return nil
}

// double is a server that speaks the protocol and plays turns.
func double(t *testing.T, turns ...modeltest.Turn) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		name, method, _ := strings.Cut(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], ":")
		stream := method == "streamGenerateContent" && r.URL.RawQuery == "alt=sse"
		var req wireRequest
		if r.Method != "POST" || !stream && method != "generateContent" || json.Unmarshal(body, &req) != nil {
			fail(w, 404, "NOT_FOUND", "no such thing")
			return
		}
		gemini := strings.HasPrefix(r.URL.Path, "/v1beta/models/") && r.Header.Get("X-Goog-Api-Key") == testKey && r.Header.Get("Authorization") == ""
		vertex := strings.HasPrefix(r.URL.Path, "/v1beta1/projects/p-1/locations/europe-west4/publishers/google/models/") &&
			r.Header.Get("Authorization") == "Bearer "+testKey && r.Header.Get("X-Goog-Api-Key") == ""
		if !gemini && !vertex {
			fail(w, 400, "INVALID_ARGUMENT", "API key not valid: "+testKey, errorInfo("API_KEY_INVALID"))
			return
		}
		if err := req.check(); err != nil {
			fail(w, 400, "INVALID_ARGUMENT", err.Error())
			return
		}
		n := 0
		for _, c := range req.Contents {
			if c.Role == "model" {
				n++
			}
		}
		if n >= len(turns) {
			fail(w, 400, "INVALID_ARGUMENT", "the double has no more turns")
			return
		}
		play(w, r, name, stream, turns[n])
	}))
	t.Cleanup(srv.Close)
	return srv
}

func errorInfo(reason string) map[string]any {
	return map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}
}

func fail(w http.ResponseWriter, status int, name, message string, details ...map[string]any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "status": name, "message": message, "details": details}})
}

func failAs(w http.ResponseWriter, e *model.Error) {
	switch e.Kind {
	case model.ErrUnavailable:
		fail(w, 503, "UNAVAILABLE", e.Message)
	case model.ErrRateLimited:
		fail(w, 429, "RESOURCE_EXHAUSTED", e.Message, map[string]any{"@type": "type.googleapis.com/google.rpc.QuotaFailure"},
			map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": fmt.Sprintf("%gs", e.RetryAfter.Seconds())})
	case model.ErrBadRequest:
		fail(w, 400, "INVALID_ARGUMENT", e.Message)
	case model.ErrAuth:
		fail(w, 403, "PERMISSION_DENIED", e.Message)
	case model.ErrContextTooLong:
		fail(w, 400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).")
	}
}

func candidate(finish string, parts ...any) map[string]any {
	c := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	if finish != "" {
		c["finishReason"] = finish
	}
	return c
}

func play(w http.ResponseWriter, r *http.Request, name string, stream bool, turn modeltest.Turn) {
	if turn.Hang && !stream {
		<-r.Context().Done()
		return
	}
	if turn.Fail != nil && (!stream || turn.Text == "") {
		failAs(w, turn.Fail)
		return
	}
	usage := map[string]any{"promptTokenCount": turn.Usage.InputTokens, "candidatesTokenCount": turn.Usage.OutputTokens, "totalTokenCount": turn.Usage.InputTokens + turn.Usage.OutputTokens}
	thought := map[string]any{"text": "hm, what do they want?", "thought": true}
	var calls []any
	for _, c := range turn.Calls {
		calls = append(calls, map[string]any{"functionCall": map[string]any{"name": c.Name, "args": c.Arguments}, "thoughtSignature": "c2lnbmVk"})
	}
	if !stream {
		parts := []any{thought}
		if turn.Text != "" {
			parts = append(parts, map[string]any{"text": turn.Text})
		}
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		json.NewEncoder(w).Encode(map[string]any{"candidates": []any{candidate("STOP", append(parts, calls...)...)}, "usageMetadata": usage, "modelVersion": name + "-001"})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(c map[string]any) {
		data, _ := json.Marshal(map[string]any{"candidates": []any{c}, "usageMetadata": usage, "modelVersion": name + "-001"})
		fmt.Fprintf(w, "data: %s\r\n\r\n", data)
		w.(http.Flusher).Flush()
	}
	event(candidate("", thought))
	for _, word := range modeltest.Words(turn.Text) {
		event(candidate("", map[string]any{"text": word}))
	}
	if turn.Fail != nil {
		fmt.Fprint(w, `data: {"candidates":[{"cont`) // and then nothing
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	if turn.Hang {
		<-r.Context().Done()
		return
	}
	for _, c := range calls {
		event(candidate("", c))
	}
	event(candidate("STOP", map[string]any{"text": "", "thoughtSignature": "dGV4dA=="}))
}

func newModel(t *testing.T, url string, mend ...func(*google.Config)) *google.Model {
	t.Helper()
	cfg := google.Config{BaseURL: url, Key: secret}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	cfg.HTTPClient = &http.Client{Transport: transport}
	for _, f := range mend {
		f(&cfg)
	}
	m, err := google.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func secret(context.Context) (string, error) { return testKey + "\n", nil }

// vertex makes a configuration that of Vertex AI.
func vertex(c *google.Config) {
	c.Provider, c.Project, c.Location, c.Key, c.Token = google.Vertex, "p-1", "europe-west4", nil, secret
}

func hasKey(s string) bool { return strings.Contains(s, testKey) || strings.Contains(s, testKey[8:]) }

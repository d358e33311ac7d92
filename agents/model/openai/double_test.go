package openai_test

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
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/model/openai"
)

const testKey = "sk-test-4f9a8b7c6d5e4f3a2b1c"

// wireRequest is the part of a chat completions request that the double reads.
type wireRequest struct {
	Model    string
	Stream   bool
	Messages []struct {
		Role      string
		Content   *string
		ToolCalls []struct {
			ID, Type string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
		ToolCallID string `json:"tool_call_id"`
	}
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// check refuses what the real endpoint would refuse.
func (r *wireRequest) check() error {
	open := map[string]bool{}
	for i, m := range r.Messages {
		switch m.Role {
		case "system", "user":
			if m.Content == nil {
				return fmt.Errorf("messages[%d]: no content", i)
			}
		case "assistant":
			if m.Content == nil && len(m.ToolCalls) == 0 {
				return fmt.Errorf("messages[%d]: neither content nor calls", i)
			}
			for _, c := range m.ToolCalls {
				if c.Type != "function" || c.ID == "" || !json.Valid([]byte(c.Function.Arguments)) {
					return fmt.Errorf("messages[%d]: call %+v", i, c)
				}
				open[c.ID] = true
			}
			continue
		case "tool":
			if !open[m.ToolCallID] {
				return fmt.Errorf("messages[%d]: answers no call", i)
			}
			delete(open, m.ToolCallID)
		default:
			return fmt.Errorf("messages[%d]: role %q", i, m.Role)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls without answer: %v", open)
	}
	return nil
}

// double is a server that speaks the protocol and plays turns.
func double(t *testing.T, turns ...modeltest.Turn) *httptest.Server {
	return doubleOf(t, false, turns...)
}

// doubleOf is a double that can report a stream's usage without being asked, as some servers do.
func doubleOf(t *testing.T, unasked bool, turns ...modeltest.Turn) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var req wireRequest
		if r.Method != "POST" || r.URL.Path != "/v1/chat/completions" || json.Unmarshal(body, &req) != nil {
			fail(w, 404, "", "not_found", "no such thing")
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+testKey {
			fail(w, 401, "invalid_api_key", "invalid_request_error", "Incorrect API key provided: "+r.Header.Get("Authorization"))
			return
		}
		if err := req.check(); err != nil {
			fail(w, 400, "", "invalid_request_error", err.Error())
			return
		}
		n := 0
		for _, m := range req.Messages {
			if m.Role == "assistant" {
				n++
			}
		}
		if n >= len(turns) {
			fail(w, 400, "", "invalid_request_error", "the double has no more turns")
			return
		}
		req.StreamOptions.IncludeUsage = req.StreamOptions.IncludeUsage || unasked
		if req.Stream {
			playStream(w, r, req, turns[n])
		} else {
			playWhole(w, r, req, turns[n])
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

func fail(w http.ResponseWriter, status int, code, typ, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "type": typ, "message": message, "param": nil}})
}

func failAs(w http.ResponseWriter, e *model.Error) {
	switch e.Kind {
	case model.ErrUnavailable:
		fail(w, 503, "", "server_error", e.Message)
	case model.ErrRateLimited:
		w.Header().Set("Retry-After", fmt.Sprint(e.RetryAfter.Seconds()))
		fail(w, 429, "rate_limit_exceeded", "requests", e.Message)
	case model.ErrBadRequest:
		fail(w, 400, "", "invalid_request_error", e.Message)
	case model.ErrAuth:
		fail(w, 401, "invalid_api_key", "invalid_request_error", e.Message)
	case model.ErrContextTooLong:
		fail(w, 400, "context_length_exceeded", "invalid_request_error", e.Message)
	}
}

func usage(u model.Usage) map[string]any {
	return map[string]any{"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens}
}

func playWhole(w http.ResponseWriter, r *http.Request, req wireRequest, turn modeltest.Turn) {
	if turn.Hang {
		<-r.Context().Done()
		return
	}
	if turn.Fail != nil {
		failAs(w, turn.Fail)
		return
	}
	message := map[string]any{"role": "assistant", "content": turn.Text, "refusal": nil}
	finish := "stop"
	if len(turn.Calls) > 0 {
		finish = "tool_calls"
		var calls []any
		for _, c := range turn.Calls {
			calls = append(calls, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": string(c.Arguments)}})
		}
		message["tool_calls"] = calls
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": req.Model + "-2026", "usage": usage(turn.Usage),
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": finish, "logprobs": nil}},
	})
}

func playStream(w http.ResponseWriter, r *http.Request, req wireRequest, turn modeltest.Turn) {
	if turn.Fail != nil && turn.Text == "" {
		failAs(w, turn.Fail)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	event := func(choices []any, extra ...any) {
		chunk := map[string]any{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": req.Model + "-2026", "choices": choices, "usage": nil}
		if len(extra) > 0 {
			chunk["usage"] = extra[0]
		}
		data, _ := json.Marshal(chunk)
		fmt.Fprintf(w, "data: %s\n\n", data)
		w.(http.Flusher).Flush()
	}
	delta := func(d map[string]any, finish any) {
		event([]any{map[string]any{"index": 0, "delta": d, "finish_reason": finish, "logprobs": nil}})
	}
	fmt.Fprint(w, ": keep-alive\n\n")
	delta(map[string]any{"role": "assistant", "content": ""}, nil)
	for _, word := range modeltest.Words(turn.Text) {
		delta(map[string]any{"content": word}, nil)
	}
	if turn.Fail != nil {
		fmt.Fprint(w, `data: {"id":"chatcmpl-1","choi`) // and then nothing
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	if turn.Hang {
		<-r.Context().Done()
		return
	}
	// The calls begin one after the other, then their arguments come in
	// pieces, in turn, cut without regard for JSON or UTF-8 boundaries of escapes.
	const pieces = 5
	for i, c := range turn.Calls {
		delta(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": ""}}}}, nil)
	}
	for p := range pieces {
		for i, c := range turn.Calls {
			args := []rune(string(c.Arguments))
			part := string(args[len(args)*p/pieces : len(args)*(p+1)/pieces])
			delta(map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]any{"arguments": part}}}}, nil)
		}
	}
	finish := "stop"
	if len(turn.Calls) > 0 {
		finish = "tool_calls"
	}
	delta(map[string]any{}, finish)
	if req.StreamOptions.IncludeUsage {
		event([]any{}, usage(turn.Usage))
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func newModel(t *testing.T, url string, mend ...func(*openai.Config)) *openai.Model {
	t.Helper()
	cfg := openai.Config{BaseURL: url + "/v1", Key: func(context.Context) (string, error) { return testKey + "\n", nil }}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	cfg.HTTPClient = &http.Client{Transport: transport}
	for _, f := range mend {
		f(&cfg)
	}
	m, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func hasKey(s string) bool { return strings.Contains(s, testKey) || strings.Contains(s, testKey[8:]) }

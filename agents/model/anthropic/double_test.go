package anthropic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/anthropic"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

const testKey = "sk-ant-test-4f9a8b7c6d5e4f3a2b1c"

// wireRequest is the part of a messages request that the double reads.
type wireRequest struct {
	Model       string
	MaxTokens   int `json:"max_tokens"`
	Stream      bool
	System      []wireBlock
	Temperature *float64
	Thinking    json.RawMessage
	Messages    []struct {
		Role    string
		Content []wireBlock
	}
	Tools []struct {
		Name        string
		InputSchema map[string]any `json:"input_schema"`
	}
}

type wireBlock struct {
	Type, Text, ID, Name string
	Input                map[string]any
	ToolUseID            string `json:"tool_use_id"`
	IsError              bool   `json:"is_error"`
	Thinking, Signature  string
}

var wireID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// check refuses what the real endpoint would refuse.
func (r *wireRequest) check() error {
	if r.MaxTokens < 1 {
		return fmt.Errorf("max_tokens: Field required")
	}
	if r.Temperature != nil && *r.Temperature > 1 {
		return fmt.Errorf("temperature: range: 0..1")
	}
	for _, b := range r.System {
		if b.Type != "text" || strings.TrimSpace(b.Text) == "" {
			return fmt.Errorf("system: text content blocks must be non-empty")
		}
	}
	for i, t := range r.Tools {
		if t.Name == "" || t.InputSchema["type"] != "object" {
			return fmt.Errorf("tools.%d.custom.input_schema: Field required", i)
		}
	}
	open := []string{}
	for i, m := range r.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("messages.%d: role %q, want %q", i, m.Role, want)
		}
		if len(m.Content) == 0 {
			return fmt.Errorf("messages.%d: no content", i)
		}
		if err := checkContent(m.Content, &open); err != nil {
			return fmt.Errorf("messages.%d: %w", i, err)
		}
		if len(open) > 0 && len(r.Tools) == 0 {
			return fmt.Errorf("Requests which include `tool_use` or `tool_result` blocks must define tools.")
		}
		if m.Role == "user" && len(open) > 0 {
			return fmt.Errorf("messages.%d: tool_use ids were found without tool_result blocks immediately after: %v", i, open)
		}
	}
	if n := len(r.Messages); n%2 == 0 {
		return fmt.Errorf("messages: the last one must be the user's")
	}
	return nil
}

func checkContent(content []wireBlock, open *[]string) error {
	results := true
	for j, b := range content {
		switch b.Type {
		case "text":
			results = false
			if strings.TrimSpace(b.Text) == "" {
				return fmt.Errorf("content.%d: text content blocks must contain non-whitespace text", j)
			}
		case "tool_use":
			if !wireID.MatchString(b.ID) || b.Name == "" || b.Input == nil {
				return fmt.Errorf("content.%d: tool_use %+v", j, b)
			}
			*open = append(*open, b.ID)
		case "tool_result":
			at := slices.Index(*open, b.ToolUseID)
			if at < 0 || !results {
				return fmt.Errorf("content.%d: unexpected tool_use_id", j)
			}
			*open = slices.Delete(*open, at, at+1)
		case "thinking":
			if b.Signature != "signed:"+b.Thinking {
				return fmt.Errorf("content.%d: Invalid `signature` in `thinking` block", j)
			}
		case "redacted_thinking", "server_tool_use", "web_search_tool_result":
		default:
			return fmt.Errorf("content.%d: type %q", j, b.Type)
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
		var req wireRequest
		if r.Method != "POST" || r.URL.Path != "/v1/messages" || r.Header.Get("anthropic-version") == "" {
			fail(w, 404, "not_found_error", "no such thing")
			return
		}
		if r.Header.Get("X-Api-Key") != testKey {
			fail(w, 401, "authentication_error", "invalid x-api-key: "+r.Header.Get("X-Api-Key"))
			return
		}
		err = json.Unmarshal(body, &req)
		if err == nil {
			err = req.check()
		}
		if err != nil {
			fail(w, 400, "invalid_request_error", err.Error())
			return
		}
		n := 0
		for _, m := range req.Messages {
			if m.Role == "assistant" {
				n++
			}
		}
		if n >= len(turns) {
			fail(w, 400, "invalid_request_error", "the double has no more turns")
			return
		}
		play(w, r, req, turns[n])
	}))
	t.Cleanup(srv.Close)
	return srv
}

func fail(w http.ResponseWriter, status int, typ, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(errorBody(typ, message))
}

func errorBody(typ, message string) map[string]any {
	return map[string]any{"type": "error", "error": map[string]any{"type": typ, "message": message}, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}
}

func failAs(w http.ResponseWriter, e *model.Error) {
	switch e.Kind {
	case model.ErrUnavailable:
		fail(w, 529, "overloaded_error", e.Message)
	case model.ErrRateLimited:
		w.Header().Set("Retry-After", fmt.Sprint(e.RetryAfter.Seconds()))
		fail(w, 429, "rate_limit_error", e.Message)
	case model.ErrBadRequest:
		fail(w, 400, "invalid_request_error", e.Message)
	case model.ErrAuth:
		fail(w, 401, "authentication_error", e.Message)
	case model.ErrContextTooLong:
		fail(w, 400, "invalid_request_error", "prompt is too long: 200002 tokens > 200000 maximum")
	}
}

func play(w http.ResponseWriter, r *http.Request, req wireRequest, turn modeltest.Turn) {
	if turn.Fail != nil && (turn.Text == "" || !req.Stream) {
		failAs(w, turn.Fail)
		return
	}
	if turn.Hang && !req.Stream {
		<-r.Context().Done()
		return
	}
	var blocks []any
	if turn.Text != "" {
		blocks = append(blocks, map[string]any{"type": "text", "text": turn.Text})
	}
	stop := "end_turn"
	for _, c := range turn.Calls {
		stop = "tool_use"
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": "toolu_" + c.ID, "name": c.Name, "input": c.Arguments})
	}
	message := func(stop any, output int64, content []any) map[string]any {
		return map[string]any{"id": "msg_1", "type": "message", "role": "assistant", "model": req.Model + "-20260101", "content": content, "stop_reason": stop, "stop_sequence": nil,
			"usage": map[string]any{"input_tokens": turn.Usage.InputTokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": output}}
	}
	if !req.Stream {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(message(stop, turn.Usage.OutputTokens, blocks))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	event := func(typ string, members map[string]any) {
		members["type"] = typ
		data, _ := json.Marshal(members)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", typ, data)
		w.(http.Flusher).Flush()
	}
	event("message_start", map[string]any{"message": message(nil, 1, []any{})})
	event("ping", map[string]any{})
	index := 0
	block := func(start map[string]any, deltas ...map[string]any) {
		event("content_block_start", map[string]any{"index": index, "content_block": start})
		for _, d := range deltas {
			event("content_block_delta", map[string]any{"index": index, "delta": d})
		}
		event("content_block_stop", map[string]any{"index": index})
		index++
	}
	if turn.Text != "" {
		var words []map[string]any
		for _, word := range modeltest.Words(turn.Text) {
			words = append(words, map[string]any{"type": "text_delta", "text": word})
		}
		if turn.Fail != nil || turn.Hang {
			event("content_block_start", map[string]any{"index": 0, "content_block": map[string]any{"type": "text", "text": ""}})
			for _, d := range words {
				event("content_block_delta", map[string]any{"index": 0, "delta": d})
			}
			if turn.Fail != nil {
				fmt.Fprint(w, "event: content_block_delta\ndata: {\"type\":\"content_bl") // and then nothing
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		} else {
			block(map[string]any{"type": "text", "text": ""}, words...)
		}
	}
	if turn.Hang {
		<-r.Context().Done()
		return
	}
	// Arguments come in pieces that are cut at any byte.
	const pieces = 5
	for _, c := range turn.Calls {
		var parts []map[string]any
		args := []rune(string(c.Arguments))
		for p := range pieces {
			parts = append(parts, map[string]any{"type": "input_json_delta", "partial_json": string(args[len(args)*p/pieces : len(args)*(p+1)/pieces])})
		}
		block(map[string]any{"type": "tool_use", "id": "toolu_" + c.ID, "name": c.Name, "input": map[string]any{}}, parts...)
	}
	event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": turn.Usage.OutputTokens}})
	event("message_stop", map[string]any{})
}

func newModel(t testing.TB, url string, mend ...func(*anthropic.Config)) *anthropic.Model {
	t.Helper()
	cfg := anthropic.Config{BaseURL: url, Key: func(context.Context) (string, error) { return testKey + "\n", nil }}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	cfg.HTTPClient = &http.Client{Transport: transport}
	for _, f := range mend {
		f(&cfg)
	}
	m, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func hasKey(s string) bool { return strings.Contains(s, testKey) || strings.Contains(s, testKey[12:]) }

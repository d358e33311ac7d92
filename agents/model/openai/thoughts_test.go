package openai_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/model/openai"
)

// A model's thoughts before its tool calls are sent back to its provider, and to no other.
func TestThoughtsGoBackToTheirProvider(t *testing.T) {
	t.Parallel()
	const js = "application/json"
	whole := `{"model":"m","choices":[{"message":{"content":null,"reasoning_content":"hm, \"look\"","reasoning_details":[{"type":"reasoning.encrypted","data":"e=="}],"tool_calls":[{"id":"a","type":"function","function":{"name":"one","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`
	stream := streamOf(
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":"hm, "}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"\"look\"","reasoning_details":[]}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":null,"reasoning_details":[{"type":"reasoning.encrypted","data":"e=="}]}}]}`,
		callDelta(`"index":0,`, "a", "one", "{}"), finish("tool_calls"), "[DONE]")
	for media, text := range map[string]string{js: whole, "text/event-stream": stream} {
		for provider, want := range map[string]string{
			"deepseek":   `"reasoning_content":"hm, \"look\""`,
			"openrouter": `"reasoning_details":[{"type":"reasoning.encrypted","data":"e=="}]`,
			"custom":     "",
		} {
			srv := &canned{header: map[string]string{"Content-Type": media}, body: text}
			m := as(t, provider, modeltest.Serve(t, srv))
			res, err := m.Generate(t.Context(), hi, func(d model.Delta) error { return fmt.Errorf("told %q", d.Text) })
			if err != nil {
				t.Fatal(err)
			}
			if (len(res.Message.Provider) > 0) != (want != "") || res.Message.Content != "" {
				t.Errorf("%s, %s: message %+v", provider, media, res.Message)
			}
			next := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), res.Message, model.ToolResult(res.Message.ToolCalls[0], json.RawMessage(`1`))}}
			if err := next.Validate(); err != nil {
				t.Fatal(err)
			}
			m.Generate(t.Context(), next, nil)
			if got := srv.bodies[1]; want != "" && !strings.Contains(got, want) || strings.Contains(got, "reasoning") != (want != "") {
				t.Errorf("%s, %s: sent back %s, want %s", provider, media, got, want)
			}
			other := &canned{body: fine}
			if _, err := as(t, "mistral", modeltest.Serve(t, other)).Generate(t.Context(), next, nil); err != nil || strings.Contains(other.bodies[0], "reasoning") {
				t.Errorf("another provider was sent %v, error %v", other.bodies, err)
			}
			if _, err := as(t, "deepseek", modeltest.Serve(t, other)).Generate(t.Context(), next, nil); err != nil || !strings.Contains(other.bodies[1], `"reasoning_content":"`) {
				t.Errorf("deepseek was sent %v, error %v", other.bodies, err)
			}
		}
	}
}

func TestUsageInAllItsForms(t *testing.T) {
	t.Parallel()
	for usage, want := range map[string]model.Usage{
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14}`:                                                                                    {InputTokens: 10, OutputTokens: 4},
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":8,"cache_write_tokens":2}}`:                 {InputTokens: 10, OutputTokens: 4, CachedInputTokens: 8, CacheWriteTokens: 2},
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":2}`:                           {InputTokens: 10, OutputTokens: 4, CachedInputTokens: 8},
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"completion_tokens_details":{"reasoning_tokens":3}}`:                                 {InputTokens: 10, OutputTokens: 4},
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":44,"completion_tokens_details":{"reasoning_tokens":30}}`:                                {InputTokens: 10, OutputTokens: 34},
		`{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"cost":0.01,"prompt_tokens_details":null,"completion_tokens_details":null,"x":[{}]}`: {InputTokens: 10, OutputTokens: 4},
	} {
		for _, answer := range []*canned{
			{body: `{"model":"m","choices":[{"message":{"content":"ok"},"finish_reason":"stop"}],"usage":` + usage + `}`},
			{header: map[string]string{"Content-Type": "text/event-stream"}, body: streamOf(say("ok"), finish("stop"), `{"choices":[],"usage":`+usage+`}`, "[DONE]")},
		} {
			res, err := newModel(t, modeltest.Serve(t, answer)).Generate(t.Context(), hi, nil)
			if err != nil || res.Usage != want {
				t.Errorf("%s: %+v, error %v, want %+v", usage, res, err, want)
			}
		}
	}
}

func TestContentInParts(t *testing.T) {
	t.Parallel()
	const parts = `[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"o"},{"type":"text","text":"k"}]`
	for _, answer := range []*canned{
		{body: `{"model":"m","choices":[{"message":{"content":` + parts + `},"finish_reason":"stop"}]}`},
		{header: map[string]string{"Content-Type": "text/event-stream"}, body: streamOf(`{"choices":[{"index":0,"delta":{"content":`+parts+`}}]}`, finish("stop"), "[DONE]")},
	} {
		res, err := newModel(t, modeltest.Serve(t, answer)).Generate(t.Context(), hi, nil)
		if err != nil || res.Message.Content != "ok" {
			t.Errorf("response %+v, error %v, want ok", res, err)
		}
	}
}

func TestTurnsThatBreakOffWithAReason(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"error", "insufficient_system_resource"} {
		srv := &canned{header: map[string]string{"Content-Type": "text/event-stream"}, body: streamOf(say("it began"), finish(reason), "[DONE]")}
		if res, err := newModel(t, modeltest.Serve(t, srv)).Generate(t.Context(), hi, func(model.Delta) error { return nil }); res != nil || !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("%s: response %+v, error %v", reason, res, err)
		}
	}
	srv := httptest.NewServer(&canned{status: 402, body: `{"error":{"message":"Insufficient Balance"}}`})
	t.Cleanup(srv.Close)
	if _, err := newModel(t, srv.URL).Generate(t.Context(), hi, nil); !errors.Is(err, model.ErrRateLimited) {
		t.Errorf("402: error %v, want %v, so that another provider is asked", err, model.ErrRateLimited)
	}
}

// Thoughts in many small pieces are put together once: with a copy for each piece, those of a few
// megabytes would keep a processor busy for minutes. No other test runs beside this one.
func TestManyPiecesOfThoughtsAreCopiedOnce(t *testing.T) {
	const n = 40_000
	piece := `{"choices":[{"index":0,"delta":{"reasoning_content":"think"}}]}`
	srv := &canned{header: map[string]string{"Content-Type": "text/event-stream"}, body: streamOf(strings.Repeat(piece+"\n\ndata: ", n)+say("ok"), finish("stop"), "[DONE]")}
	m := newModel(t, modeltest.Serve(t, srv), func(cfg *openai.Config) { cfg.Provider = "deepseek" })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := m.Generate(t.Context(), hi, func(model.Delta) error { return nil })
	runtime.ReadMemStats(&after)
	if err != nil || !bytes.Contains(got.Message.Provider, []byte(strings.Repeat("think", n))) {
		t.Fatal(err)
	}
	if all := (after.TotalAlloc - before.TotalAlloc) >> 20; all > 1000 {
		t.Errorf("it took %d MiB to read thoughts of %d KiB", all, 5*n>>10)
	}
}

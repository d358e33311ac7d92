package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
)

// NewFunc makes the model under test, whose backend plays turns[n] for a conversation with n
// assistant messages. It registers its own cleanup.
type NewFunc func(t *testing.T, turns ...Turn) model.Model

// Run is the conformance suite of [model.Model]. Run it under -race.
//
// The backend must answer exactly with Turn.Text, Turn.Calls and Turn.Usage. With Turn.Fail it must
// fail, in a stream after Turn.Text. With Turn.Hang it must not answer.
func Run(t *testing.T, newModel NewFunc) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, NewFunc)
	}{
		{"answers", testAnswers},
		{"streams what it answers", testStreams},
		{"calls tools and goes on", testToolRound},
		{"calls tools in parallel", testParallelCalls},
		{"answers in the format asked for", testFormats},
		{"accepts every parameter", testParams},
		{"reports failures by kind", testFailures},
		{"reports a broken stream", testBrokenStream},
		{"continues what was told", testContinue},
		{"refuses invalid requests", testInvalid},
		{"stops at the callback's error", testCallbackError},
		{"obeys its context", testContext},
		{"goes on with another's conversation", testForeign},
		{"leaves the request alone", testRetention},
		{"serves many at once", testConcurrency},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			c.test(t, newModel)
		})
	}
}

// patience bounds waits that are normally short; it does not slow down a
// successful test.
const patience = 30 * time.Second

func request(messages ...model.Message) *model.Request {
	return &model.Request{Model: "m", Messages: append([]model.Message{model.System("be brief")}, messages...)}
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// generate calls m with a deadline, and returns the texts of the deltas in
// order.
func generate(t *testing.T, m model.Model, req *model.Request, stream bool) (*model.Response, []string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var pieces []string
	var onDelta func(model.Delta) error
	if stream {
		onDelta = func(d model.Delta) error {
			pieces = append(pieces, d.Text) // unsynchronised, so that the race detector reports concurrent calls
			return nil
		}
	}
	res, err := m.Generate(ctx, req, onDelta)
	if (res == nil) == (err == nil) {
		t.Fatalf("Generate returned response %+v and error %v, want exactly one of them", res, err)
	}
	return res, pieces, err
}

func mustGenerate(t *testing.T, m model.Model, req *model.Request, stream bool) (*model.Response, []string) {
	t.Helper()
	res, pieces, err := generate(t, m, req, stream)
	if err != nil {
		t.Fatalf("Generate: %v", err)
	}
	if res.Message.Role != model.RoleAssistant {
		t.Errorf("role %q, want %q", res.Message.Role, model.RoleAssistant)
	}
	for _, p := range pieces {
		if p == "" {
			t.Error("an empty delta")
		}
	}
	return res, pieces
}

const text = "Two words, a «quote», and {braces}.\n\tThen a new line.  "

func testAnswers(t *testing.T, newModel NewFunc) {
	want := model.Usage{InputTokens: 12, OutputTokens: 34}
	m := newModel(t, Turn{Text: text, Usage: want})
	res, _ := mustGenerate(t, m, request(model.User("hi")), false)
	if res.Message.Content != text || res.Finish != model.FinishStop || len(res.Message.ToolCalls) != 0 {
		t.Errorf("response %+v, want content %q and finish %q", res, text, model.FinishStop)
	}
	if res.Usage != want {
		t.Errorf("usage %+v, want %+v", res.Usage, want)
	}
	if res.Model == "" {
		t.Error("the response does not name its model")
	}
}

func testStreams(t *testing.T, newModel NewFunc) {
	want := model.Usage{InputTokens: 5, OutputTokens: 6}
	m := newModel(t, Turn{Text: text, Usage: want})
	res, pieces := mustGenerate(t, m, request(model.User("hi")), true)
	if got := strings.Join(pieces, ""); got != text || res.Message.Content != text {
		t.Errorf("streamed %q, answered %q, want both %q", got, res.Message.Content, text)
	}
	if len(pieces) < 2 {
		t.Errorf("%d deltas for %d words", len(pieces), len(Words(text)))
	}
	if res.Finish != model.FinishStop || res.Usage != want {
		t.Errorf("finish %q, usage %+v, want %q and %+v", res.Finish, res.Usage, model.FinishStop, want)
	}
}

func testToolRound(t *testing.T, newModel NewFunc) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			t.Parallel()
			m := newModel(t,
				Turn{Text: "let me look ", Calls: []model.ToolCall{{ID: "call_a", Name: "look", Arguments: raw(`{"path":"a b/«c».go","n":9007199254740993}`)}}},
				Turn{Text: "done and seen"})
			req := request(model.User("look at it"))
			req.Tools = []model.ToolDef{{Name: "look", Description: "looks", Parameters: raw(`{"type":"object","properties":{"path":{"type":"string"}}}`)}}
			res, pieces := mustGenerate(t, m, req, stream)
			if res.Finish != model.FinishToolCalls || len(res.Message.ToolCalls) != 1 {
				t.Fatalf("response %+v, want one call and finish %q", res, model.FinishToolCalls)
			}
			if got := strings.Join(pieces, ""); stream && got != res.Message.Content {
				t.Errorf("streamed %q, answered %q", got, res.Message.Content)
			}
			call := res.Message.ToolCalls[0]
			if call.ID == "" || call.Name != "look" {
				t.Errorf("call %+v, want an id and the name look", call)
			}
			wantJSON(t, call.Arguments, `{"path":"a b/«c».go","n":9007199254740993}`)

			req.Messages = append(req.Messages, res.Message, model.ToolResult(call, raw(`{"lines":3}`)))
			res, _ = mustGenerate(t, m, req, stream)
			if res.Message.Content != "done and seen" || res.Finish != model.FinishStop {
				t.Errorf("after the tool's result: %+v", res)
			}
		})
	}
}

func testParallelCalls(t *testing.T, newModel NewFunc) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, Turn{Calls: []model.ToolCall{
				{ID: "call_a", Name: "one", Arguments: raw(`{"a":1}`)},
				{ID: "call_b", Name: "two", Arguments: raw(`{}`)},
				{ID: "call_c", Name: "one", Arguments: raw(`{"a":[2,{"b":null}]}`)},
			}}, Turn{Text: "all three"})
			req := request(model.User("go"))
			req.Tools = []model.ToolDef{{Name: "one"}, {Name: "two"}}
			res, _ := mustGenerate(t, m, req, stream)
			calls := res.Message.ToolCalls
			if len(calls) != 3 {
				t.Fatalf("%d calls, want 3: %+v", len(calls), calls)
			}
			ids := map[string]bool{}
			for i, want := range []model.ToolCall{{Name: "one", Arguments: raw(`{"a":1}`)}, {Name: "two", Arguments: raw(`{}`)}, {Name: "one", Arguments: raw(`{"a":[2,{"b":null}]}`)}} {
				if calls[i].Name != want.Name {
					t.Errorf("call %d is of %q, want %q", i, calls[i].Name, want.Name)
				}
				wantJSON(t, calls[i].Arguments, string(want.Arguments))
				ids[calls[i].ID] = true
			}
			if len(ids) != 3 || ids[""] {
				t.Errorf("ids %v, want three different ones", ids)
			}
			req.Messages = append(req.Messages, res.Message)
			for i, c := range calls {
				if i == 1 {
					req.Messages = append(req.Messages, model.ToolFailure(c, "no such thing"))
					continue
				}
				req.Messages = append(req.Messages, model.ToolResult(c, raw(`"ok"`)))
			}
			if res, _ := mustGenerate(t, m, req, stream); res.Message.Content != "all three" {
				t.Errorf("after the results: %+v", res)
			}
		})
	}
}

func testFormats(t *testing.T, newModel NewFunc) {
	const answer = `{"n":9007199254740993,"list":[1,2]}`
	for _, f := range []model.Format{
		{Type: model.FormatText},
		{Type: model.FormatJSON},
		{Type: model.FormatJSONSchema, Schema: raw(`{"type":"object"}`)},
		{Type: model.FormatJSONSchema, Name: "answer", Strict: true, Schema: raw(`{"type":"object","properties":{"n":{"type":"integer"}}}`)},
	} {
		m := newModel(t, Turn{Text: answer})
		req := request(model.User("give me JSON"))
		req.Format = f
		for _, stream := range []bool{false, true} {
			res, _ := mustGenerate(t, m, req, stream)
			wantJSON(t, raw(res.Message.Content), answer)
		}
	}
}

func testParams(t *testing.T, newModel NewFunc) {
	f := func(v float64) *float64 { return &v }
	seed := int64(42)
	m := newModel(t, Turn{Text: "fine"})
	req := request(model.User("hi"))
	req.Params = model.Params{Temperature: f(0), MaxTokens: 64, TopP: f(0.5), FrequencyPenalty: f(-1), PresencePenalty: f(1),
		Stop: []string{"END"}, Seed: &seed, Extended: raw(`{"vendor.knob*":{"x":[1,2]}}`)}
	res, _ := mustGenerate(t, m, req, true)
	if res.Message.Content != "fine" {
		t.Errorf("response %+v", res)
	}
	// Dropped parameters have the document's names.
	known := []string{"extended", "frequency_penalty", "max_tokens", "presence_penalty", "seed", "stop", "temperature", "top_p"}
	if !slices.IsSorted(res.Dropped) || slices.ContainsFunc(res.Dropped, func(name string) bool { return !slices.Contains(known, name) }) {
		t.Errorf("dropped %q, want some of %q, sorted", res.Dropped, known)
	}
	req.Params = model.Params{}
	if res, _ := mustGenerate(t, m, req, false); len(res.Dropped) != 0 {
		t.Errorf("dropped %q of nothing", res.Dropped)
	}
}

func testFailures(t *testing.T, newModel NewFunc) {
	for _, kind := range model.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			want := &model.Error{Kind: kind, Message: "told to fail"}
			if kind == model.ErrRateLimited {
				want.RetryAfter = 7 * time.Second
			}
			m := newModel(t, Turn{Fail: want})
			for _, stream := range []bool{false, true} {
				_, pieces, err := generate(t, m, request(model.User("hi")), stream)
				var e *model.Error
				if !errors.Is(err, kind) || !errors.As(err, &e) {
					t.Fatalf("error %v (%T), want an *Error of kind %q", err, err, kind)
				}
				if e.RetryAfter != want.RetryAfter {
					t.Errorf("retry after %s, want %s", e.RetryAfter, want.RetryAfter)
				}
				if len(pieces) != 0 {
					t.Errorf("a failed turn streamed %q", pieces)
				}
			}
		})
	}
}

func testBrokenStream(t *testing.T, newModel NewFunc) {
	m := newModel(t, Turn{Text: "it began and", Fail: &model.Error{Kind: model.ErrUnavailable, Message: "connection lost"}})
	_, pieces, err := generate(t, m, request(model.User("hi")), true)
	if !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("error %v, want %v", err, model.ErrUnavailable)
	}
	if got := strings.Join(pieces, ""); !strings.HasPrefix("it began and", got) {
		t.Errorf("streamed %q, which doubles or invents text", got)
	}
}

// testContinue tests models that implement [model.Continuer].
func testContinue(t *testing.T, newModel NewFunc) {
	first := []model.ToolCall{{ID: "call_a", Name: "look", Arguments: raw(`{"a":1}`)}}
	m, ok := newModel(t, Turn{Text: text, Calls: first, Usage: model.Usage{InputTokens: 5, OutputTokens: 6}}).(model.Continuer)
	if !ok {
		return
	}
	req := request(model.User("hi"))
	req.Tools = []model.ToolDef{{Name: "look"}}
	want, _ := mustGenerate(t, m, req, false)
	for _, told := range []string{text[:1], text[:len(text)/2], text} {
		for _, stream := range []bool{false, true} {
			var rest strings.Builder
			var onDelta func(model.Delta) error
			if stream {
				onDelta = func(d model.Delta) error { rest.WriteString(d.Text); return nil }
			}
			res, err := m.Continue(t.Context(), req, told, onDelta)
			if err != nil || !reflect.DeepEqual(res, want) {
				t.Errorf("after %q: response %+v, error %v, want %+v", told, res, err, want)
			}
			if stream && told+rest.String() != text {
				t.Errorf("after %q it streamed %q", told, rest.String())
			}
		}
	}
	for _, told := range []string{"Three words", text + "and more"} {
		res, err := m.Continue(t.Context(), req, told, func(model.Delta) error {
			t.Errorf("after %q, which is not its text, it streamed", told)
			return nil
		})
		if res != nil || !errors.Is(err, model.ErrNotContinued) {
			t.Errorf("after %q: response %+v, error %v, want %v", told, res, err, model.ErrNotContinued)
		}
	}
}

func testInvalid(t *testing.T, newModel NewFunc) {
	m := newModel(t, Turn{Text: "never"})
	for name, req := range map[string]*model.Request{
		"no messages": {Model: "m"},
		"odd role":    request(model.Message{Role: "robot"}),
		"twin tools":  {Model: "m", Messages: []model.Message{model.User("hi")}, Tools: []model.ToolDef{{Name: "a"}, {Name: "a"}}},
	} {
		if _, _, err := generate(t, m, req, false); !errors.Is(err, model.ErrBadRequest) {
			t.Errorf("%s: error %v, want %v", name, err, model.ErrBadRequest)
		}
	}
}

func testCallbackError(t *testing.T, newModel NewFunc) {
	m := newModel(t, Turn{Text: text})
	mine := errors.New("nobody listens")
	calls := 0
	res, err := m.Generate(t.Context(), request(model.User("hi")), func(model.Delta) error {
		calls++
		return mine
	})
	if res != nil || !errors.Is(err, mine) || calls != 1 {
		t.Errorf("response %+v, error %v after %d deltas, want the callback's error after one", res, err, calls)
	}
}

func testContext(t *testing.T, newModel NewFunc) {
	t.Run("done before", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := newModel(t, Turn{Text: "late"}).Generate(ctx, request(model.User("hi")), nil)
		wantContextError(t, err, context.Canceled)
	})
	t.Run("cancelled while it waits", func(t *testing.T) {
		t.Parallel()
		m := newModel(t, Turn{Text: "it began and", Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := bounded(t, func() (*model.Response, error) {
			return m.Generate(ctx, request(model.User("hi")), func(model.Delta) error {
				cancel()
				return nil
			})
		})
		wantContextError(t, err, context.Canceled)
	})
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		m := newModel(t, Turn{Hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := bounded(t, func() (*model.Response, error) {
			return m.Generate(ctx, request(model.User("hi")), nil)
		})
		wantContextError(t, err, context.DeadlineExceeded)
	})
}

func wantContextError(t *testing.T, err, want error) {
	t.Helper()
	var e *model.Error
	if !errors.Is(err, want) || errors.As(err, &e) {
		t.Errorf("error %v (%T), want %v and no *model.Error", err, err, want)
	}
}

// bounded fails the test if f does not return, instead of blocking the whole
// run.
func bounded(t *testing.T, f func() (*model.Response, error)) (res *model.Response, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err = f()
	}()
	select {
	case <-done:
		return res, err
	case <-time.After(patience):
		t.Fatalf("Generate did not return within %s of its context's end", patience)
		return nil, nil
	}
}

func testRetention(t *testing.T, newModel NewFunc) {
	m := newModel(t, Turn{Calls: []model.ToolCall{{ID: "call_a", Name: "look", Arguments: raw(`{"a":1}`)}}}, Turn{Text: "the end"})
	build := func() *model.Request {
		req := request(model.User("hi"))
		req.Tools = []model.ToolDef{{Name: "look", Parameters: raw(`{"type":"object"}`)}}
		req.Params.Extended = raw(`{"x":1}`)
		return req
	}
	req, same := build(), build()
	first, _ := mustGenerate(t, m, req, true)
	if !reflect.DeepEqual(req, same) {
		t.Errorf("the request was changed\n got %+v\nwant %+v", req, same)
	}
	// The caller may reuse its memory after Generate: this must have no effect
	// on the model.
	scribble(req.Tools[0].Parameters)
	scribble(req.Params.Extended)
	wantJSON(t, first.Message.ToolCalls[0].Arguments, `{"a":1}`)
	scribble(first.Message.ToolCalls[0].Arguments)
	second, _ := mustGenerate(t, m, build(), true)
	wantJSON(t, second.Message.ToolCalls[0].Arguments, `{"a":1}`)
}

func scribble(b []byte) {
	for i := range b {
		b[i] = '!'
	}
}

func testConcurrency(t *testing.T, newModel NewFunc) {
	m := newModel(t, Turn{Calls: []model.ToolCall{{ID: "call_a", Name: "look", Arguments: raw(`{"a":1}`)}}}, Turn{Text: text})
	req := request(model.User("hi")) // one request, read by all
	req.Tools = []model.ToolDef{{Name: "look"}}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var got strings.Builder
			mine := *req
			for range 2 {
				res, err := m.Generate(t.Context(), &mine, func(d model.Delta) error {
					got.WriteString(d.Text)
					return nil
				})
				if err != nil {
					t.Errorf("goroutine %d: %v", i, err)
					return
				}
				mine.Messages = append(mine.Messages[:len(mine.Messages):len(mine.Messages)], res.Message)
				for _, c := range res.Message.ToolCalls {
					mine.Messages = append(mine.Messages, model.ToolResult(c, raw(`1`)))
				}
			}
			if got.String() != text {
				t.Errorf("goroutine %d streamed %q, want %q", i, got.String(), text)
			}
		})
	}
	wg.Wait()
}

// wantJSON compares JSON texts, numbers by their digits.
func wantJSON(t *testing.T, got json.RawMessage, want string) {
	t.Helper()
	if !SameJSON(t, got, want) {
		t.Errorf("JSON %s, want %s", got, want)
	}
}

package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
)

// Peers are told which routes failed and how; the providers' words are for the
// log.
func TestPeersSeeRoutesNotWords(t *testing.T) {
	t.Parallel()
	var log safeBuffer
	m := model.Func(func(context.Context, *model.Request, func(model.Delta) error) (*model.Response, error) {
		return nil, &model.Error{Kind: model.ErrRateLimited, RetryAfter: 5 * time.Second, Message: "openai/a: org-secret is over its limit; lab/b: host db.internal is down",
			Tries: []model.Try{{Route: "openai/a", Kind: model.ErrRateLimited, RetryAfter: 5 * time.Second, Asked: true}, {Route: "lab/b", Kind: model.ErrAuth}}}
	})
	w := newWorld(t)
	a := newAgent(t, doc(t, `"model": {"provider": "openai", "preferred": "a"}`), agents.Options{Model: m, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w.host(a)
	got := w.send(a.Entity, `{"text":"go"}`, sending{})
	if got.err == nil || got.err.Code != envelope.CodeRateLimited || got.err.Message != "no model answered: openai/a: model rate limited (retry after 5s); lab/b: not asked after an earlier failure: model refused the credential" {
		t.Errorf("told %+v", got.err)
	}
	if got.err != nil && got.err.BackoffMS != 5000 {
		t.Errorf("told to wait %v, want 5 s", got.err.BackoffMS)
	}
	if !strings.Contains(log.String(), "db.internal") {
		t.Errorf("the log has not the providers' words:\n%s", log.String())
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A model that chooses among several gets the conversation whole, and as much
// of it as fits a window when it asks: whole turns, the system prompt and the
// task always.
func TestConversationFitsTheRoutesWindow(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 600) // about 1000 tokens
	calls := 0
	var whole, small, least []model.Message
	m := model.Func(func(_ context.Context, req *model.Request, _ func(model.Delta) error) (*model.Response, error) {
		if calls++; calls <= 4 {
			return &model.Response{Message: model.Assistant(long, model.ToolCall{ID: "c", Name: "look", Arguments: json.RawMessage(`{}`)}), Finish: model.FinishToolCalls}, nil
		}
		whole, small, least = req.Messages, req.Fit(5000), req.Fit(1)
		return &model.Response{Message: model.Assistant("done"), Finish: model.FinishStop}, nil
	})
	w := newWorld(t)
	a := newAgent(t, doc(t, `"model": {"provider": "openai", "preferred": "a"}, "tools": [{"name": "look", "description": "Looks."}]`),
		agents.Options{Model: m, Tools: registry(t, "look")})
	w.host(a)
	if got := w.send(a.Entity, `{"text":"go"}`, sending{}); got.err != nil {
		t.Fatal(got.err)
	}
	if len(whole) != 10 || len(small) >= len(whole) || len(small) <= len(least) {
		t.Fatalf("whole %d, in a window of 5000 tokens %d, at least %d messages", len(whole), len(small), len(least))
	}
	for _, kept := range [][]model.Message{small, least} {
		if kept[0].Role != model.RoleSystem || kept[1].Content != "go" || kept[len(kept)-1].Role != model.RoleTool {
			t.Errorf("kept %+v", kept)
		}
		if err := (&model.Request{Messages: kept}).Validate(); err != nil {
			t.Error(err)
		}
		for i, m := range kept[2:] {
			if want := []model.Role{model.RoleAssistant, model.RoleTool}[i%2]; m.Role != want {
				t.Errorf("message %d is %s's: a call was parted from its result", i+2, m.Role)
			}
		}
	}
}

// Options.Models makes the model of a document that names no offline one.
func TestModelsOfTheOperator(t *testing.T) {
	t.Parallel()
	opts := agents.Options{Models: func(def *aaif.Definition, _ agents.Options) (model.Model, []aaif.Problem, error) {
		return model.Func(func(context.Context, *model.Request, func(model.Delta) error) (*model.Response, error) {
			return &model.Response{Message: model.Assistant("I am " + def.Agent.Model.Preferred), Finish: model.FinishStop, Dropped: []string{"seed"}}, nil
		}), []aaif.Problem{{Pointer: "/agent/model", Message: "a word"}}, nil
	}}
	var log safeBuffer
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	a := newAgent(t, doc(t, `"model": {"provider": "xai", "preferred": "grok", "params": {"seed": 1}}`), opts)
	if len(a.Notices) != 1 || a.Notices[0].Message != "a word" {
		t.Errorf("notices %v", a.Notices)
	}
	w := newWorld(t)
	w.host(a)
	for range 3 {
		if got := w.send(a.Entity, `{"text":"go"}`, sending{}); got.payload != text("I am grok") {
			t.Errorf("got %+v", got)
		}
	}
	if n := strings.Count(log.String(), "parameters left out"); n != 1 {
		t.Errorf("told %d times that a parameter is left out, want once:\n%s", n, log.String())
	}
}

// What an endpoint says of its model's name is cut, and does not make the log tell again what it has told: the
// agent remembers that for as long as it lives.
func TestNamesOfModelsThatAnEndpointInvents(t *testing.T) {
	t.Parallel()
	invented := func() model.Model {
		var n atomic.Int32
		return agents.Reported("xai", model.Func(func(context.Context, *model.Request, func(model.Delta) error) (*model.Response, error) {
			name := fmt.Sprintf("grok-%d-%s", n.Add(1), strings.Repeat("x", 1<<20))
			return &model.Response{Message: model.Assistant("hi"), Finish: model.FinishStop, Model: name, Dropped: []string{"seed"}}, nil
		}))
	}
	res, err := invented().Generate(t.Context(), &model.Request{Model: "grok"}, nil)
	if err != nil || len(res.Model) > 210 || !strings.HasPrefix(res.Model, "grok-1-xxx") {
		t.Errorf("a name of %d bytes, %v", len(res.Model), err)
	}
	var log safeBuffer
	a := newAgent(t, doc(t, `"model": {"provider": "xai", "preferred": "grok", "params": {"seed": 1}}`), agents.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Models: func(*aaif.Definition, agents.Options) (model.Model, []aaif.Problem, error) {
			return invented(), nil, nil
		},
	})
	w := newWorld(t)
	w.host(a)
	for range 3 {
		if got := w.send(a.Entity, `{"text":"go"}`, sending{}); got.payload != text("hi") {
			t.Errorf("got %.300s, %v", got.payload, got.err)
		}
	}
	if n := strings.Count(log.String(), "parameters left out"); n != 1 || len(log.String()) > 10_000 {
		t.Errorf("told %d times that a parameter is left out, in a log of %d bytes", n, len(log.String()))
	}
}

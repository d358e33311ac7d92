package agents_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A run that may not spend more ends before it does, and the bus says what it
// has used.
func TestARunEndsBeforeItsBudgetIsBroken(t *testing.T) {
	t.Parallel()
	m := modeltest.New(
		modeltest.Turn{Calls: []model.ToolCall{{ID: "c", Name: "look", Arguments: json.RawMessage(`{}`)}}, Usage: model.Usage{InputTokens: 300, OutputTokens: 200}},
		modeltest.Turn{Text: "never said"},
	)
	reg := new(tool.Registry)
	if err := reg.Add(toolThatSays("look", ``, `1`)); err != nil {
		t.Fatal(err)
	}
	doc := definition(t, `{"sc_standard":"SC-006","agent":{"name":"Clerk","goal":"Look.","model":{"provider":"custom","provider_id":"x","preferred":"y","params":{"max_tokens":100}},"tools":[{"name":"look","description":"Looks."}]}}`)
	a, err := agents.New(doc, agents.Options{Model: m, Tools: reg, Budget: agents.Budget{RunTokens: 600}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	failed, err := w.conn.SubscribeSync("bus.mesh.task")
	if err != nil {
		t.Fatal(err)
	}
	w.host(a)
	got := w.send(a.Entity, `{"text":"go"}`, sending{})
	if got.err == nil || got.err.Code != envelope.CodeBudget || got.err.Retryable || !strings.Contains(got.err.Message, "used 500 tokens of 600") {
		t.Errorf("%+v", got)
	}
	if n := len(m.Requests()); n != 1 {
		t.Errorf("the model was asked %d times, want 1", n)
	}
	for {
		msg, err := failed.NextMsg(patience)
		if err != nil {
			t.Fatal("no event with the usage")
		}
		if strings.Contains(string(msg.Data), `"usage":{"input_tokens":300,"output_tokens":200,"model_calls":1,"tool_calls":1,"unpriced_calls":1`) {
			return
		}
	}
}

// What a provider says of its usage is believed as far as it can be true: a run is
// not ended, and not made cheaper, by counts that make no sense.
func TestUsageThatCannotBeTrue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		usage model.Usage
		want  string
	}{
		"negative": {model.Usage{InputTokens: -1000, OutputTokens: -1000, CachedInputTokens: -5}, `{"text":"hi"}`},
		"huge":     {model.Usage{InputTokens: 1<<63 - 1, OutputTokens: 1<<63 - 1}, `{"text":"hi","usage":{"input_tokens":1099511627776,"output_tokens":1099511627776}}`},
	} {
		a, err := agents.New(definition(t, `{"sc_standard":"SC-006","agent":{"name":"Clerk","goal":"Look."}}`), agents.Options{Model: modeltest.New(modeltest.Turn{Text: "hi", Usage: c.usage})})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t)
		w.host(a)
		if got := w.send(a.Entity, `{"text":"go"}`, sending{}); got.err != nil || got.payload != c.want {
			t.Errorf("%s: %s, %v", name, got.payload, got.err)
		}
	}
}

// The cost of a usage that makes no sense is believed as far as checkpoints and signed envelopes can
// hold it.
func TestACostThatCannotBeTrue(t *testing.T) {
	t.Parallel()
	price := model.Price{Known: true, Input: model.Dollar / 400, Output: model.Dollar / 100}
	cost := func(u model.Usage) (model.USD, bool) {
		return price.Input.For(u.InputTokens).Add(price.Output.For(u.OutputTokens)), true
	}
	lint := calls(call("1", "lint", `{}`))
	lint.Usage = model.Usage{InputTokens: 1<<63 - 1, OutputTokens: 1<<63 - 1}
	fake := modeltest.New(lint, modeltest.Turn{Text: "hi", Usage: lint.Usage})
	a := newAgent(t, doc(t, lintTool), agents.Options{As: "agent.spender", Tools: registry(t, "lint"), Models: func(*aaif.Definition, agents.Options) (model.Model, []aaif.Problem, error) {
		return agents.Asking(price, cost, agents.Reported("x", fake)), nil, nil
	}})
	l := newLane(t)
	l.host(a, nil)
	task := l.task(a.Entity, `{"text":"go"}`, "")
	l.submit(task)
	if got, want := l.result(task), `{"text":"hi","usage":{"input_tokens":2199023255552,"output_tokens":2199023255552,"cost_usd":1000000}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// breaking is a model that answers, and panics after that.
type breaking struct{ answers atomic.Int64 }

func (b *breaking) Generate(context.Context, *model.Request, func(model.Delta) error) (*model.Response, error) {
	if b.answers.Add(-1) < 0 {
		panic("a model's client is broken")
	}
	return &model.Response{Message: model.Assistant("hi"), Finish: model.FinishStop, Usage: model.Usage{InputTokens: 3, OutputTokens: 4}}, nil
}

// adding is Counters that add up the tokens.
type adding struct{ tokens atomic.Int64 }

func (a *adding) Add(_ context.Context, n int64, _, kind string, _ ...string) (int64, error) {
	if kind == mesh.CountTokens {
		return a.tokens.Add(n), nil
	}
	return 0, nil
}

// A model that panics leaves nothing reserved in the counters of the tree: the other runs of the tree
// may use it. It is so for a turn, and for the question about the answer.
func TestAModelThatPanicsReservesNothing(t *testing.T) {
	t.Parallel()
	for answers, used := range []int{0, 7 + 7} { // the tree and the corr have a counter each
		count := new(adding)
		broken := new(breaking)
		broken.answers.Store(int64(answers))
		a, err := agents.New(definition(t, `{"sc_standard":"SC-006","agent":{"name":"Clerk","goal":"Look."}}`), agents.Options{Model: broken, Budget: agents.Budget{TreeTokens: 1 << 20}, Counters: count})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t)
		w.host(a)
		if got := w.send(a.Entity, `{"text":"go"}`, sending{requires: `{"decision_evidence":"standard"}`}); got.err == nil || got.err.Code != envelope.CodeInternal {
			t.Errorf("after %d answers: %s, %v", answers, got.payload, got.err)
		}
		if n := count.tokens.Load(); n != int64(used) {
			t.Errorf("after %d answers: %d tokens stay counted, want %d", answers, n, used)
		}
	}
}

package agents

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
)

// chat builds a conversation of messages of about 100 tokens from words like
// "s u a t t": who speaks.
func chat(script string) []model.Message {
	var out []model.Message
	for i, who := range strings.Fields(script) {
		text := fmt.Sprintf("%d%s", i, strings.Repeat(" ", 96*bytesPerToken-2))
		switch who {
		case "s":
			out = append(out, model.System(text))
		case "u":
			out = append(out, model.User(text))
		case "a":
			out = append(out, model.Assistant(text))
		case "t":
			out = append(out, model.Message{Role: model.RoleTool, Content: text, ToolCallID: "1"})
		}
	}
	return out
}

func TestAConversationIsCutFromItsOldestEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		chat      string
		taskFirst bool
		messages  int // that there is room for
		want      string
	}{
		{"s u a t t a t", true, 7, "0 1 2 3 4 5 6"},
		{"s u a t t a t", true, 6, "0 1 5 6"}, // a turn goes with what its tools said
		{"s u a t t a t", true, 1, "0 1 5 6"}, // the last turn stays, whatever its size
		{"s s u a a a", true, 5, "0 1 2 4 5"}, // all that is at the head stays
		{"s u a u a u", true, 5, "0 1 3 4 5"},
		{"s u a u a u", false, 5, "0 3 4 5"}, // no answer without what it answers
		{"s u a t a t", false, 4, "0 1 4 5"}, // what the last turn is about
		{"u a u a", false, 2, "2 3"},
		{"s u", true, 1, "0 1"},
	} {
		var got []string
		for _, m := range fit(chat(c.chat), c.taskFirst, c.messages*100) {
			got = append(got, strings.TrimSpace(m.Content))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s in %d: got %s, want %s", c.chat, c.messages, s, c.want)
		}
	}
}

// Messages that do not fit the model are not sent; the run and its document
// keep all of them.
func TestALongRunFitsItsModel(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{ContextTokens: 3600})
	var sent []int
	w.loop.model = model.Func(func(_ context.Context, req *model.Request, _ func(model.Delta) error) (*model.Response, error) {
		sent = append(sent, len(req.Messages))
		if size := sizeOf(req.Messages); size > 3600 {
			t.Errorf("%d tokens were sent", size)
		}
		m := model.Assistant(strings.Repeat("x", 800*bytesPerToken), wish("1", "lint"))
		if len(sent) == 5 {
			m.ToolCalls = nil
		}
		return &model.Response{Message: m, Finish: model.FinishStop}, nil
	})
	p := newPaper(t, w.begin())
	if _, err := w.work(p); err != nil {
		t.Fatal(err)
	}
	if want := []int{2, 4, 6, 8, 8}; !reflect.DeepEqual(sent, want) {
		t.Errorf("sent %v messages, want %v", sent, want)
	}
	if n := len(p.next().Doc.Conversation); n != 11 {
		t.Errorf("the document has %d messages, want 11", n)
	}
}

// After a model has refused a conversation as too long, it gets less, and from
// then on never more than that.
func TestAModelThatSaysTooLongGetsLess(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{})
	var sent []int
	w.loop.model = model.Func(func(_ context.Context, req *model.Request, _ func(model.Delta) error) (*model.Response, error) {
		sent = append(sent, len(req.Messages))
		if len(req.Messages) > 6 {
			return nil, model.Errorf(model.ErrContextTooLong, "too long")
		}
		return &model.Response{Message: model.Assistant("fine"), Finish: model.FinishStop}, nil
	})
	cp := w.begin()
	r := &progress{phase: phaseModel, taskFirst: true, turns: 3, messages: chat("s u a t a t a t a t")}
	if err := r.save(cp); err != nil {
		t.Fatal(err)
	}
	if got, err := w.work(newPaper(t, cp)); err != nil || got != `{"text":"fine"}` {
		t.Fatalf("%s, %v", got, err)
	}
	if want := []int{10, 4}; !reflect.DeepEqual(sent, want) {
		t.Errorf("sent %v messages, want %v", sent, want)
	}
}

// The question about an answer is shortened as any turn is: without the account the confidence
// would be 0.
func TestAQuestionForEvidenceThatIsTooLongGetsLess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most, question int // messages that the model takes
		sent           []int
		fails          bool
	}{
		{10, 10, []int{10, 12, 6}, false},
		{4, 4, []int{10, 4, 6, 4}, false},
		{10, 3, []int{10, 12, 6, 4}, true}, // nothing more can be left out
	} {
		w := newWorkbench(t, Options{})
		w.task.Requires = envelope.Requirements{HasMinConfidence: true, MinConfidence: 0.8}
		var sent []int
		w.loop.model = model.Func(func(_ context.Context, req *model.Request, _ func(model.Delta) error) (*model.Response, error) {
			sent = append(sent, len(req.Messages))
			most, answer := c.most, "fine"
			if req.Messages[len(req.Messages)-1].Content == accountPrompt {
				most, answer = c.question, `{"decision":"d","reason_summary":"r","action_taken":"a","confidence":0.9}`
			}
			if len(req.Messages) > most {
				return nil, model.Errorf(model.ErrContextTooLong, "too long")
			}
			return &model.Response{Message: model.Assistant(answer), Finish: model.FinishStop}, nil
		})
		cp := w.begin()
		r := &progress{phase: phaseModel, taskFirst: true, turns: 3, messages: chat("s u a t a t a t a t")}
		if err := r.save(cp); err != nil {
			t.Fatal(err)
		}
		if got, err := w.work(newPaper(t, cp)); (err != nil) != c.fails || err == nil && got != `{"text":"fine"}` {
			t.Errorf("at most %d and %d messages: %s, %v", c.most, c.question, got, err)
		}
		if !reflect.DeepEqual(sent, c.sent) {
			t.Errorf("at most %d and %d messages: sent %v, want %v", c.most, c.question, sent, c.sent)
		}
	}
}

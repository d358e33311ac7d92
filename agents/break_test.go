package agents_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
)

// brittle is a model whose streams break: try n streams say[n], and breaks
// unless it is the last.
type brittle struct {
	say [][]string

	mu    sync.Mutex
	tries int
	avoid [][]string // what each try was asked to avoid
}

func (b *brittle) next(req *model.Request) (int, []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(b.tries, len(b.say)-1)
	b.tries++
	b.avoid = append(b.avoid, slices.Clone(req.Avoid))
	return n, b.say[n]
}

func (b *brittle) Generate(_ context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	n, words := b.next(req)
	return b.speak(n, words, "", onDelta)
}

func (b *brittle) speak(n int, words []string, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	for _, w := range words {
		if onDelta != nil {
			if err := onDelta(model.Delta{Text: w}); err != nil {
				return nil, err
			}
		}
	}
	if n < len(b.say)-1 {
		return nil, &model.Error{Kind: model.ErrUnavailable, Message: "the wire was cut", Route: "route" + string(rune('0'+n))}
	}
	return &model.Response{Message: model.Assistant(told + strings.Join(words, "")), Finish: model.FinishStop, Model: "b"}, nil
}

// steady is a brittle model that is a Continuer.
type steady struct{ *brittle }

func (s steady) Continue(_ context.Context, req *model.Request, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	n, words := s.next(req)
	return s.speak(n, words, told, onDelta)
}

func text(s string) string    { return `{"text":"` + s + `"}` }
func restart(s string) string { return `{"restart":true,"text":"` + s + `"}` }

var breaks = map[string]struct {
	say       [][]string
	continues bool
	want      []string // stream payloads
	answer    string
	code      envelope.Code
}{
	"the same text":        {say: [][]string{{"one ", "two "}, {"one ", "two ", "three"}}, want: []string{text("one "), text("two "), text("three")}, answer: "one two three"},
	"in other pieces":      {say: [][]string{{"one ", "two "}, {"one t", "wo th", "ree"}}, want: []string{text("one "), text("two "), text("th"), text("ree")}, answer: "one two three"},
	"another text":         {say: [][]string{{"one ", "two "}, {"one ", "or ", "two"}}, want: []string{text("one "), text("two "), restart("one or "), text("two")}, answer: "one or two"},
	"a shorter text":       {say: [][]string{{"one ", "two "}, {"one "}}, want: []string{text("one "), text("two "), restart("one ")}, answer: "one "},
	"it goes on":           {say: [][]string{{"one ", "two "}, {"three"}}, continues: true, want: []string{text("one "), text("two "), text("three")}, answer: "one two three"},
	"it goes on twice":     {say: [][]string{{"one "}, {"two "}, {"three"}}, continues: true, want: []string{text("one "), text("two "), text("three")}, answer: "one two three"},
	"breaks within":        {say: [][]string{{"one ", "two "}, {"one "}, {"one ", "two ", "three"}}, want: []string{text("one "), text("two "), text("three")}, answer: "one two three"},
	"another, then broken": {say: [][]string{{"one "}, {"a ", "b "}, {"a ", "b ", "c"}}, want: []string{text("one "), restart("a "), text("b "), text("c")}, answer: "a b c"},
	"again and again":      {say: [][]string{{"one "}, {"one "}, {"one "}, {"one "}, {"never"}}, want: []string{text("one ")}, code: envelope.CodeUnavailable},
	"before it began":      {say: [][]string{nil, {"one"}}, want: nil, code: envelope.CodeUnavailable},
}

// A stream that breaks is continued, and no text is streamed twice.
func TestBrokenStreamIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	for name, c := range breaks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &brittle{say: c.say}
			var m model.Model = b
			if c.continues {
				m = steady{b}
			}
			w := newWorld(t)
			a := newAgent(t, doc(t, `"model": {"provider": "openai", "preferred": "m"}`), agents.Options{Model: m})
			w.host(a)
			got := w.send(a.Entity, `{"text":"go"}`, sending{stream: true, requires: `{"stream":true}`})
			if !reflect.DeepEqual(got.stream, c.want) {
				t.Errorf("streamed %q\n    want %q", got.stream, c.want)
			}
			if c.code != "" {
				if got.err == nil || got.err.Code != c.code {
					t.Errorf("got %+v, want %s", got, c.code)
				}
				return
			}
			if got.payload != text(c.answer) {
				t.Errorf("answer %s, want %s", got.payload, text(c.answer))
			}
			var avoid []string
			for i, asked := range b.avoid {
				if !slices.Equal(asked, avoid) {
					t.Errorf("try %d was to avoid %v, want %v", i, asked, avoid)
				}
				avoid = append(avoid, "route"+string(rune('0'+i)))
			}
		})
	}
}

// The same on the durable lane; there a turn that broke too often is retried
// with the task.
func TestBrokenStreamOfADurableTask(t *testing.T) {
	t.Parallel()
	for name, c := range breaks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &brittle{say: c.say}
			var m model.Model = b
			if c.continues {
				m = steady{b}
			}
			l := newLane(t)
			a := newAgent(t, doc(t, `"model": {"provider": "openai", "preferred": "m"}, "runtime": {"max_retries": 0}`), agents.Options{Model: m})
			l.host(a, nil)
			task := l.task(a.Entity, `{"text":"go"}`, `{"stream":true}`)
			l.submit(task)
			want := text(c.answer)
			if c.code != "" {
				want = string(c.code)
			}
			if got := l.result(task); got != want {
				t.Errorf("result %s, want %s", got, want)
			}
			var stream []string
			for _, e := range l.replies(task) {
				if e.Type == envelope.TypeStream {
					stream = append(stream, withoutSeq(t, e.Payload))
				}
			}
			if !reflect.DeepEqual(stream, c.want) {
				t.Errorf("streamed %q\n    want %q", stream, c.want)
			}
		})
	}
}

func withoutSeq(t *testing.T, payload json.RawMessage) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(payload, &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "seq")
	raw, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

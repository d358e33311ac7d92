package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A tool that fails is told to the model, and the operator sees it: one warning a
// call, of either lane, without the arguments of the call.
func TestAFailedCallIsToldToTheOperator(t *testing.T) {
	t.Parallel()
	turns := []modeltest.Turn{
		calls(call("1", "print", `{"copies":1,"title":"the arguments"}`), call("2", "print", `{"copies":424242}`), call("3", "dream", `{"title":"the arguments"}`)),
		says("done"),
	}
	const document = `"tools": [{"name": "print", "description": "Prints.", "parameters_schema": {"type": "object", "properties": {"copies": {"type": "integer", "maximum": 9}}}}]`
	hosted := func(entity string) (*agents.Agent, *safeBuffer) {
		log, reg := new(safeBuffer), new(tool.Registry)
		if err := reg.Add(tool.Raw(tool.Definition{Name: "print", Description: "x"}, func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New("no paper left")
		})); err != nil {
			t.Fatal(err)
		}
		return newAgent(t, doc(t, document), agents.Options{As: entity, Model: modeltest.New(turns...), Tools: reg, Logger: slog.New(slog.NewTextHandler(log, nil))}), log
	}
	// told are the warnings about calls; a first task's corr is its id.
	told := func(log *safeBuffer, id string) (lines []string) {
		for line := range strings.Lines(log.String()) {
			if _, about, ok := strings.Cut(line, `level=WARN msg="a tool's call `); ok {
				lines = append(lines, strings.NewReplacer(id, "ID", "\n", "").Replace(about))
			}
		}
		slices.Sort(lines)
		return lines
	}
	want := func(entity string) []string {
		const about = `failed" id=ID corr=ID entity=`
		return []string{
			about + entity + ` intent=test.run tool=dream err="tool dream: not found: there is no such tool; there are: print"`,
			about + entity + ` intent=test.run tool=print err="invalid arguments"`,
			about + entity + ` intent=test.run tool=print err="tool print: failed: no paper left"`,
		}
	}

	t.Run("live", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, log := hosted("agent.live_printer")
		w.host(a)
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.live_printer", "test.run", json.RawMessage(`{"text":"go"}`))
		reply, err := w.node.Send(t.Context(), task, mesh.SendOptions{})
		if err != nil || string(reply.Payload) != `{"text":"done"}` {
			t.Fatalf("got %v, %v", reply, err)
		}
		if got := told(log, task.ID); !slices.Equal(got, want("agent.live_printer")) {
			t.Errorf("the operator was told %q\nwant %q", got, want("agent.live_printer"))
		}
	})
	t.Run("durable", func(t *testing.T) {
		t.Parallel()
		l := newLane(t)
		a, log := hosted("agent.durable_printer")
		l.host(a, nil)
		task := l.task("agent.durable_printer", `{"text":"go"}`, "")
		l.submit(task)
		if got := l.result(task); got != `{"text":"done"}` {
			t.Fatalf("got %s", got)
		}
		if got := told(log, task.ID); !slices.Equal(got, want("agent.durable_printer")) {
			t.Errorf("the operator was told %q\nwant %q", got, want("agent.durable_printer"))
		}
	})
}

// The call in which a turn was cut off at the token limit is not made: its arguments may be
// only a part of what the model wanted, or none. Those before it are complete.
func TestACallThatWasCutOffIsNotMade(t *testing.T) {
	t.Parallel()
	for lane, durable := range map[string]bool{"live": false, "durable": true} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			var made safeBuffer
			reg := new(tool.Registry)
			if err := reg.Add(tool.Raw(tool.Definition{Name: "delete", Description: "x"}, func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
				_, err := made.Write(args)
				return json.RawMessage(`{"deleted":1}`), err
			})); err != nil {
				t.Fatal(err)
			}
			cut := calls(call("1", "delete", `{"before":"2020"}`), call("2", "delete", `{}`))
			cut.Finish = model.FinishLength
			m := modeltest.New(cut, says("done"))
			const document = `"tools": [{"name": "delete", "description": "Deletes invoices.", "parameters_schema": {"type": "object", "properties": {"before": {"type": "string"}}}}]`
			a := newAgent(t, doc(t, document), agents.Options{As: "agent.deleter", Model: m, Tools: reg})
			var got string
			if durable {
				l := newLane(t)
				l.host(a, nil)
				task := l.task(a.Entity, `{"text":"go"}`, "")
				l.submit(task)
				got = l.result(task)
			} else {
				w := newWorld(t)
				w.host(a)
				got = w.send(a.Entity, `{"text":"go"}`, sending{}).payload
			}
			if got != `{"text":"done"}` || made.String() != `{"before":"2020"}` {
				t.Errorf("answer %s, calls made: %s", got, made.String())
			}
			results := m.Requests()[1].Messages
			if last := results[len(results)-1].Content; !strings.Contains(last, "token limit before this call was complete") {
				t.Errorf("the model was told %s", last)
			}
		})
	}
}

// A model's JSON that names a member twice, has half a surrogate pair or nests too deep for an
// Agent State is no worse than any other that cannot be used: the model is told, and corrects it.
func TestAModelCorrectsJSONThatNothingCanHold(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"twice": `{"query":"a","query":"b"}`, "half a pair": `{"query":"\ud83d"}`, "deep": `{"query":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := new(tool.Registry)
			if err := reg.Add(tool.Raw(tool.Definition{Name: "find", Description: "x"}, func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
				return args, nil
			})); err != nil {
				t.Fatal(err)
			}
			wanted := model.ToolCall{ID: "1", Name: "find", Arguments: model.Arguments(bad)}
			m := modeltest.New(calls(wanted), calls(call("2", "find", `{"query":"b"}`)), says(bad), says(`{"query":"b"}`))
			a := newAgent(t, doc(t, `"model": {"provider": "custom", "provider_id": "builtin", "preferred": "x", "response_format": "json"}, "tools": [{"name": "find", "description": "Finds."}]`), agents.Options{As: "agent.finder", Model: m, Tools: reg})
			l := newLane(t)
			l.host(a, nil)
			task := l.task(a.Entity, `{"text":"go"}`, `{"stream":true}`)
			l.submit(task)
			if got := l.result(task); got != `{"query":"b"}` {
				t.Errorf("answer %s", got)
			}
		})
	}
}

// Thoughts of a provider that no checkpoint can hold are left out; the turn counts without them.
func TestThoughtsThatNothingCanHoldAreLeftOut(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{"half a pair": `{"text":"\ud83d"}`, "twice": `{"text":"a","text":"b"}`} {
		for turn, with := range map[string]int{"a call": 0, "the answer": 1} {
			t.Run(name+", "+turn, func(t *testing.T) {
				t.Parallel()
				turns := []model.Message{model.Assistant("", call("1", "find", `{}`)), model.Assistant("done")}
				turns[with].Provider = json.RawMessage(`{"openai":{"of":"openrouter","members":{"reasoning_details":[` + bad + `]}}}`)
				var asked atomic.Int32
				m := model.Func(func(context.Context, *model.Request, func(model.Delta) error) (*model.Response, error) {
					return &model.Response{Message: turns[min(int(asked.Add(1))-1, 1)], Finish: model.FinishStop}, nil
				})
				a := newAgent(t, doc(t, `"tools": [{"name": "find", "description": "Finds."}]`), agents.Options{As: "agent.thinker", Model: m, Tools: registry(t, "find")})
				l := newLane(t)
				l.host(a, nil)
				task := l.task(a.Entity, `{"text":"go"}`, "")
				l.submit(task)
				if got := l.result(task); got != `{"text":"done"}` || asked.Load() != 2 {
					t.Errorf("answer %s after %d turns", got, asked.Load())
				}
			})
		}
	}
}

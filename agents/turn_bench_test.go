package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/mesh"
)

// BenchmarkLoop is what the loop itself takes, with a model and a tool that take
// no time: from a task's submission to the first call of its model, and for each
// further turn, which is a tool call and the model's next answer. One run of ten
// turns at a time.
func BenchmarkLoop(b *testing.B) {
	const turns = 10
	var asked time.Time // when the model was asked first
	instant := model.Func(func(_ context.Context, req *model.Request, _ func(model.Delta) error) (*model.Response, error) {
		n := 0
		for _, m := range req.Messages {
			if m.Role == model.RoleAssistant {
				n++
			}
		}
		if n == 0 {
			asked = time.Now()
		}
		res := &model.Response{Message: model.Assistant("done"), Finish: model.FinishStop, Usage: model.Usage{InputTokens: 10, OutputTokens: 1}}
		if n < turns-1 {
			res.Message = model.Assistant("", model.ToolCall{ID: fmt.Sprint("c", n), Name: "look", Arguments: json.RawMessage(`{"n":1}`)})
			res.Finish = model.FinishToolCalls
		}
		return res, nil
	})
	document := definition(b, `{"sc_standard":"SC-006","agent":{"name":"Clerk","goal":"Look.","orchestration":{"max_iterations":20},
		"tools":[{"name":"look","description":"Looks.","parameters_schema":{"type":"object","properties":{"n":{"type":"integer"}}}}]}}`)
	run := func(b *testing.B, send func(l *lane, entity string) error) {
		reg := new(tool.Registry)
		if err := reg.Add(tool.RepeatSafe(toolThatSays("look", ``, `{"seen":1}`))); err != nil {
			b.Fatal(err)
		}
		l := newLane(b)
		a := newAgent(b, document, agents.Options{Model: instant, Tools: reg})
		l.host(a, nil)
		for send(l, a.Entity) != nil && b.Context().Err() == nil { // until it serves
		}
		first, rest := make([]time.Duration, 0, b.N), make([]time.Duration, 0, b.N)
		b.ResetTimer()
		for range b.N {
			begun := time.Now()
			if err := send(l, a.Entity); err != nil {
				b.Fatal(err)
			}
			first, rest = append(first, asked.Sub(begun)), append(rest, time.Since(asked))
		}
		b.StopTimer()
		slices.Sort(first)
		slices.Sort(rest)
		b.ReportMetric(float64(first[len(first)/2].Nanoseconds())/1e3, "µs/first-call")
		b.ReportMetric(float64(rest[len(rest)/2].Nanoseconds())/1e3/(turns-1), "µs/turn")
	}
	b.Run("live", func(b *testing.B) {
		run(b, func(l *lane, entity string) error {
			_, err := l.client.Send(b.Context(), l.task(entity, `{"text":"go"}`, ""), mesh.SendOptions{})
			return err
		})
	})
	b.Run("durable", func(b *testing.B) {
		run(b, func(l *lane, entity string) error {
			_, _, err := l.client.Perform(b.Context(), l.task(entity, `{"text":"go"}`, ""), mesh.SubmitOptions{}, mesh.ResultOptions{})
			return err
		})
	})
}

package agents_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/state"
)

// A receipt is committed as soon as its call has ended: before the next turn of
// the model, and while other calls of the turn run. A later commit would leave
// more calls with an unknown outcome after a crash. (Section 5 of the
// reliability review: neither the tests nor soak saw a receipt that is written
// with the next turn.)
func TestAReceiptIsWrittenAsSoonAsItsCallHasEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		calls []model.ToolCall
		want  map[string]state.EffectStatus // while the run stands still
	}{
		"one call":  {[]model.ToolCall{call("1", "pay", `{}`)}, map[string]state.EffectStatus{"pay": state.EffectDone}},
		"two calls": {[]model.ToolCall{call("1", "pay", `{}`), call("2", "wait", `{}`)}, map[string]state.EffectStatus{"pay": state.EffectDone, "wait": state.EffectInFlight}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			still, goOn := make(chan struct{}, 1), make(chan struct{})
			stand := func(ctx context.Context) {
				still <- struct{}{}
				select {
				case <-goOn:
				case <-ctx.Done():
				}
			}
			fake := modeltest.New(modeltest.Turn{Calls: c.calls}, modeltest.Turn{Text: "done"})
			turn := 0
			slow := model.Func(func(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
				if turn++; turn == 2 && len(c.calls) == 1 {
					stand(ctx)
				}
				return fake.Generate(ctx, req, onDelta)
			})
			reg := new(tool.Registry)
			for name, f := range map[string]func(context.Context){"pay": func(context.Context) {}, "wait": stand} {
				if err := reg.Add(tool.Raw(tool.Definition{Name: name, Description: name}, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
					f(ctx)
					return json.RawMessage(`1`), nil
				})); err != nil {
					t.Fatal(err)
				}
			}
			l.host(newAgent(t, doc(t, `"tools": [{"name": "pay", "description": "Pays."}, {"name": "wait", "description": "Waits."}]`), agents.Options{As: entity, Model: slow, Tools: reg}), nil)
			task := l.task(entity, `{"text":"go"}`, "")
			l.submit(task)
			select {
			case <-still:
			case <-time.After(patience):
				t.Fatalf("the run does not come to where it is to stand still: %v", l.replies(task))
			}
			l.until(task, "the receipt is written", func(cp *state.Checkpoint) bool {
				got := map[string]state.EffectStatus{}
				for _, e := range cp.Mesh.Effects {
					got[e.Tool] = e.Status
				}
				for tool, status := range c.want {
					if got[tool] != status {
						return false
					}
				}
				return true
			})
			close(goOn)
			if got := l.result(task); got != `{"text":"done"}` {
				t.Errorf("result %s", got)
			}
		})
	}
}

package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// effects are the calls of tools by idempotency key.
type effects struct {
	mu    sync.Mutex
	calls map[string]int
}

// tools are lint, which is safe to repeat, and pay, which is not.
func (e *effects) tools(t testing.TB) *tool.Registry {
	t.Helper()
	e.calls = make(map[string]int)
	reg := new(tool.Registry)
	for _, name := range []string{"lint", "pay"} {
		call := tool.Raw(tool.Definition{Name: name, Description: name}, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.calls[name+" "+tool.KeyFrom(ctx)]++
			return json.RawMessage(`1`), nil
		})
		if name == "lint" {
			call = tool.RepeatSafe(call)
		}
		if err := reg.Add(call); err != nil {
			t.Fatal(err)
		}
	}
	return reg
}

func (e *effects) all() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.calls)
}

const payTools = `"tools": [{"name": "lint", "description": "Lints."}, {"name": "pay", "description": "Pays."}]`

// A worker is cut off at each point of the commit order, in turn. Another one
// ends its run: it requests no turn that was committed, repeats no call that is
// not safe to repeat, and sends one result.
func TestADurableRunSurvivesItsWorker(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	l := newLane(t).shortLeases()
	turns := []modeltest.Turn{
		{Text: "one ", Calls: []model.ToolCall{call("1", "lint", `{}`), call("2", "pay", `{}`)}},
		{Text: "two ", Calls: []model.ToolCall{call("1", "pay", `{}`)}},
		{Text: "done"},
	}
	over := make(chan struct{})
	defer close(over)
	var wg sync.WaitGroup
	survives := func(n int) (survived bool) {
		entity := fmt.Sprintf("agent.n%d", n)
		fake, done := modeltest.New(turns...), new(effects)
		opts := agents.Options{As: entity, Model: fake, Tools: done.tools(t), LostCalls: map[string]agents.LostCall{agents.AnyTool: agents.LostTimeOut}}
		task := l.task(entity, `{"text":"go"}`, `{"stream":true}`)
		var first *worker
		var mu sync.Mutex
		seen, at := 0, mesh.Point("")
		dead := make(chan struct{})
		ready := make(chan struct{})
		first = l.host(newAgent(t, doc(t, payTools), opts), func(d *mesh.Durable) {
			d.Observe = func(p mesh.Point, _ state.ID) {
				<-ready
				mu.Lock()
				seen++
				last := seen == n
				if last {
					at = p
					first.kill()
					close(dead)
				}
				gone := seen >= n
				mu.Unlock()
				if gone {
					<-over
				}
			}
		})
		close(ready)
		l.submit(task)
		finished := make(chan struct{})
		ctx, forget := context.WithCancel(l.ctx())
		defer forget()
		wg.Go(func() {
			defer close(finished)
			l.client.Result(ctx, entity, task.ID, mesh.ResultOptions{Follow: true})
		})
		select {
		case <-dead:
		case <-finished:
		}
		mu.Lock()
		point := at
		mu.Unlock()
		if point == "" {
			survived = true
		} else {
			l.host(newAgent(t, doc(t, payTools), opts), nil)
		}
		if got := l.result(task); got != `{"text":"done"}` {
			t.Errorf("cut off at %d, %s: %s", n, point, got)
		}
		if got := len(fake.Requests()); got != 3 && (survived || got != 4) {
			t.Errorf("cut off at %d, %s: the model was asked %d times", n, point, got)
		}
		run := state.RunID(entity, task.ID)
		calls := done.all()
		if keys := slices.Sorted(maps.Keys(calls)); survived && !slices.Equal(keys, []string{"lint " + run + ".1.1", "pay " + run + ".1.2", "pay " + run + ".2.1"}) {
			t.Errorf("undisturbed: calls %v", calls)
		}
		for key, times := range calls {
			if times > 1 && (strings.HasPrefix(key, "pay") || times > 2) || !strings.Contains(key, run) {
				t.Errorf("cut off at %d, %s: %s was called %d times", n, point, key, times)
			}
		}
		var text strings.Builder
		ends := 0
		for _, e := range l.replies(task) {
			var p struct{ Text string }
			switch {
			case e.Type != envelope.TypeStream:
				ends++
			case json.Unmarshal(e.Payload, &p) == nil:
				text.WriteString(p.Text)
			}
		}
		if text.String() != "one two done" || ends != 1 {
			t.Errorf("cut off at %d, %s: told %q, and ended %d times", n, point, text.String(), ends)
		}
		return survived
	}
	// How many points there are differs a little: the slower the machine, the more.
	const atOnce, least, most = 24, 18, 96
	first := 0
	for from := 1; first == 0 && from < most; from += atOnce {
		results := make([]bool, atOnce)
		for i := range results {
			wg.Go(func() { results[i] = survives(from + i) })
		}
		wg.Wait()
		if i := slices.Index(results, true); i >= 0 {
			first = from + i
		}
	}
	if first <= least {
		t.Errorf("the first that was not cut off was %d (0: none below %d): the points were too few, or too many", first, most)
	}
}

// It is not known what became of a call: the run waits until a person settles
// it by a command, and then continues.
func TestASettledRunGoesOn(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	l := newLane(t).shortLeases()
	begun, over := make(chan string, 4), make(chan struct{})
	defer close(over)
	reg := new(tool.Registry)
	if err := reg.Add(tool.Raw(tool.Definition{Name: "lint", Description: "x"}, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		begun <- tool.KeyFrom(ctx)
		<-over // it ignores its context
		return nil, ctx.Err()
	})); err != nil {
		t.Fatal(err)
	}
	fake := modeltest.New(calls(call("a", "lint", `{}`)), says("done"))
	opts := agents.Options{Model: fake, Tools: reg}
	first := l.host(newAgent(t, doc(t, lintTool), opts), nil)
	task := l.task("agent.test_agent", `{"text":"go"}`, "")
	l.submit(task)
	key := <-begun
	first.kill()
	l.host(newAgent(t, doc(t, lintTool), opts), nil)
	parked := l.until(task, "the run is parked", func(cp *state.Checkpoint) bool { return cp.Doc.Status == aaif.RunAwaitingApproval })
	if ask := parked.Doc.ApprovalRequest; ask == nil || !strings.Contains(ask.TriggerDescription, "lint (call a)") || parked.Mesh.Effects[0].Status != state.EffectUnknown {
		t.Errorf("what the person is asked: %+v", parked.Doc)
	}
	if _, err := l.client.Result(l.ctx(), task.To, task.ID, mesh.ResultOptions{}); err == nil {
		t.Error("a run that waits has a result")
	}
	done, err := l.client.Command(l.ctx(), task.To, intents.SettleTask{
		Target: intents.Target{ID: task.ID}, Call: "a", Outcome: intents.OutcomeDone, Result: json.RawMessage(`{"n":7}`),
	})
	if err != nil || !done.Settled {
		t.Fatalf("settle: %+v, %v", done, err)
	}
	if got := l.result(task); got != `{"text":"done"}` {
		t.Errorf("result %s", got)
	}
	if told := fake.Requests()[1].Messages[3]; told.Content != `{"n":7}` || told.ToolCallID != "a" {
		t.Errorf("the model was told %+v", told)
	}
	last := l.history(task)
	end := last[len(last)-1]
	if e := end.Mesh.Effects[0]; e.Status != state.EffectDone || e.SettledBy != "human.ada" || e.Key != key {
		t.Errorf("the ledger says %+v", e)
	}
	if len(begun) != 0 {
		t.Error("the call was made again")
	}
}

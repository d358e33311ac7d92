package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

var (
	errDied   = errors.New("the worker is dead")
	errParked = errors.New("the run is parked")
)

// paper is a journal that encodes every write and reads it back. It crashes at
// one write, before or after storing it; later writes have no effect.
type paper struct {
	t     *testing.T
	last  *state.Checkpoint // as the next owner will read it
	die   int               // the write at which it crashes, from 1; 0: none
	after bool              // that write is kept
	told  string

	mu     sync.Mutex
	staged []func(*state.Checkpoint) error
	dead   bool
	writes int
	steps  []state.Step
	asked  chan struct{}
	onStep func(state.Step) // after each write
}

// newPaper makes a journal for the next owner of a run.
func newPaper(t *testing.T, last *state.Checkpoint) *paper {
	last = last.Clone()
	last.Mesh.Epoch++
	return &paper{t: t, last: last, told: last.Mesh.Told, asked: make(chan struct{})}
}

func (p *paper) Commit(ctx context.Context, step state.Step, change func(*state.Checkpoint) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.put(ctx, step, aaif.RunRunning, change)
}

func (p *paper) Park(ctx context.Context, status aaif.RunStatus, change func(*state.Checkpoint) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.put(ctx, state.Step{Kind: state.StepPause}, status, change)
}

func (p *paper) put(ctx context.Context, step state.Step, status aaif.RunStatus, change func(*state.Checkpoint) error) error {
	if p.dead {
		return errDied
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	next := p.next()
	if change != nil {
		if err := change(next); err != nil {
			return err
		}
	}
	inFlight := slices.ContainsFunc(next.Mesh.Effects, func(e state.Effect) bool { return e.Status == state.EffectInFlight })
	if status == aaif.RunRunning && isClosed(p.asked) && !inFlight {
		status = aaif.RunPaused
	}
	next.Doc.Status, next.Mesh.Step, next.Mesh.Told = status, step, p.told
	p.writes++
	if p.writes == p.die && !p.after {
		p.dead = true
		return errDied
	}
	raw, err := state.Codec{}.Encode(next)
	if err == nil {
		p.last, err = state.Codec{}.Decode(raw)
	}
	if err != nil {
		p.t.Errorf("the checkpoint of %+v: %v", step, err)
		return err
	}
	p.staged = nil
	p.steps = append(p.steps, step)
	if p.onStep != nil {
		p.onStep(step)
	}
	if p.writes == p.die {
		p.dead = true
		return errDied
	}
	if status != aaif.RunRunning {
		return errParked
	}
	return nil
}

// next is the last checkpoint with what was staged since.
func (p *paper) next() *state.Checkpoint {
	next := p.last.Clone()
	for _, change := range p.staged {
		if err := change(next); err != nil {
			p.t.Error(err)
		}
	}
	return next
}

func (p *paper) Stage(_ state.Step, change func(*state.Checkpoint) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.staged = append(p.staged, change)
	return nil
}

func (p *paper) StopRequested() <-chan struct{} { return p.asked }
func (p *paper) SentText() string               { return p.told }
func (p *paper) Steering() []state.Steer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next().Mesh.Steering
}

// workbench is an agent with two tools, lint and pay, and a task for it. It
// lists each tool call by its idempotency key.
type workbench struct {
	t     testing.TB
	model *modeltest.Fake
	loop  *loop
	task  *mesh.Task

	mu    sync.Mutex
	calls map[string]int
}

func newWorkbench(t testing.TB, opts Options, turns ...modeltest.Turn) *workbench {
	t.Helper()
	w := &workbench{t: t, model: modeltest.New(turns...), calls: make(map[string]int)}
	reg := new(tool.Registry)
	for _, name := range []string{"lint", "pay"} {
		call := tool.Raw(tool.Definition{Name: name, Description: name}, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			key := tool.KeyFrom(ctx)
			w.calls[key]++
			return json.RawMessage(fmt.Sprintf(`{"%s":%q}`, name, key)), nil
		})
		if name == "lint" {
			call = tool.RepeatSafe(call)
		}
		if err := reg.Add(call); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","agent":{"name":"Clerk","goal":"Pay.","orchestration":{"max_iterations":5},
		"tools":[{"name":"lint","description":"Lints."},{"name":"pay","description":"Pays."}]}}`), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	opts.Model, opts.Tools = w.model, reg
	a, err := New(doc, opts)
	if err != nil {
		t.Fatal(err)
	}
	w.loop = a.Handler.(*loop)
	e := envelope.New(envelope.TypeTask, "human.ada", a.Entity, "test.run", json.RawMessage(`{"text":"go"}`))
	w.task = &mesh.Task{Envelope: e}
	return w
}

func (w *workbench) begin() *state.Checkpoint {
	return state.New(w.task.Envelope.To, w.task.Envelope.ID, "")
}

func (w *workbench) work(p *paper) (string, error) {
	w.t.Helper()
	payload, err := w.loop.work(w.t.Context(), w.task, &run{journal: p, input: w.task.Envelope.Payload}, p.last)
	return string(payload), err
}

// take returns the calls since the last time.
func (w *workbench) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.calls = make(map[string]int) }()
	return w.calls
}

// lines are the ledger of a checkpoint by key.
func lines(cp *state.Checkpoint) map[string]state.EffectStatus {
	m := make(map[string]state.EffectStatus)
	for _, e := range cp.Mesh.Effects {
		m[e.Key] = e.Status
	}
	return m
}

// A worker crashes before or after each of its writes. The worker that resumes
// the run requests no turn that was committed, repeats no call with a receipt,
// and gets the same result.
func TestAWorkerMayDieAtEveryWrite(t *testing.T) {
	t.Parallel()
	turns := []modeltest.Turn{
		{Calls: []model.ToolCall{wish("1", "lint"), wish("2", "pay"), wish("3", "nothing")}, Usage: model.Usage{InputTokens: 1, OutputTokens: 1}},
		{Text: "half way", Calls: []model.ToolCall{wish("1", "pay")}, Usage: model.Usage{InputTokens: 1, OutputTokens: 1}},
		{Text: "done", Usage: model.Usage{InputTokens: 1, OutputTokens: 1}},
	}
	deaths := 0
	for _, parallel := range []int{1, 4} {
		for die := 1; ; die++ {
			died := false
			for _, after := range []bool{false, true} {
				w := newWorkbench(t, Options{ParallelTools: parallel, LostCalls: map[string]LostCall{AnyTool: LostTimeOut}}, turns...)
				first := newPaper(t, w.begin())
				first.die, first.after = die, after
				payload, err := w.work(first)
				before, asked := w.take(), len(w.model.Requests())
				if err == nil {
					if want := `{"text":"done","usage":{"input_tokens":3,"output_tokens":3}}`; payload != want || asked != 3 || len(before) != 3 {
						t.Fatalf("undisturbed: %s after %d turns and calls %v", payload, asked, before)
					}
					continue
				}
				died = true
				deaths++
				name := fmt.Sprintf("parallel %d, write %d, after %v", parallel, die, after)
				if !errors.Is(err, errDied) {
					t.Fatalf("%s: %v", name, err)
				}
				found := lines(first.last)
				kept := int(first.last.Doc.Iteration.Int64())

				second := newPaper(t, first.last)
				payload, err = w.work(second)
				if err != nil || payload != `{"text":"done","usage":{"input_tokens":3,"output_tokens":3}}` {
					t.Errorf("%s: %s, %v", name, payload, err)
				}
				if got := len(w.model.Requests()) - asked; got != 3-kept {
					t.Errorf("%s: %d turns were written down, and %d more taken", name, kept, got)
				}
				again := w.take()
				end := second.next()
				for _, e := range end.Mesh.Effects {
					n, want := again[e.Key], 0
					switch was := found[e.Key]; {
					case e.Tool == "nothing":
					case was == state.EffectInFlight && e.Tool == "pay":
						if e.Status != state.EffectTimedOut {
							t.Errorf("%s: %s is %s, want it given up", name, e.Key, e.Status)
						}
					case !was.Final():
						want = 1
					}
					if n != want {
						t.Errorf("%s: %s of %s, which was %q, was called %d times, want %d", name, e.Key, e.Tool, found[e.Key], n, want)
					}
					delete(again, e.Key)
				}
				if len(again) > 0 {
					t.Errorf("%s: calls without a line: %v", name, again)
				}
				if n := end.Mesh.Usage.ToolCalls; n != 3 {
					t.Errorf("%s: %d tool calls are counted, want each once", name, n)
				}
				if got := slices.Sorted(maps.Keys(lines(end))); len(got) != 4 || got[0] != w.begin().Doc.RunID+".1.1" || got[3] != w.begin().Doc.RunID+".2.1" {
					t.Errorf("%s: keys %v", name, got)
				}
				check(t, name, end)
			}
			if !died {
				break
			}
		}
	}
	if deaths < 20 {
		t.Errorf("only %d deaths", deaths)
	}
}

// check compares a finished run's document with what all of them must have.
func check(t *testing.T, name string, cp *state.Checkpoint) {
	t.Helper()
	var roles []string
	for _, m := range cp.Messages() {
		s := string(m.Role)
		for _, c := range m.ToolCalls {
			s += " " + c.ID
		}
		roles = append(roles, strings.TrimSpace(s+" "+m.ToolCallID))
	}
	want := []string{"system", "user", "assistant 1 2 3", "tool 1", "tool 2", "tool 3", "assistant 1", "tool 1", "assistant"}
	if !reflect.DeepEqual(roles, want) {
		t.Errorf("%s: conversation %q, want %q", name, roles, want)
	}
	if len(cp.Doc.PendingToolCalls) != 0 || cp.Doc.Iteration.Int64() != 3 {
		t.Errorf("%s: pending %v, iteration %s", name, cp.Doc.PendingToolCalls, cp.Doc.Iteration)
	}
}

func wish(id, name string) model.ToolCall {
	return model.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(`{}`)}
}

// slowLimiter permits each call after a second.
type slowLimiter struct{ asked, back int }

func (l *slowLimiter) Take(context.Context, int) (func(context.Context), error) {
	l.asked++
	time.Sleep(time.Second)
	return func(context.Context) { l.back++ }, nil
}

func (*slowLimiter) Spent(context.Context, int) {}

// A call is recorded as in flight before it waits for its tool's rate limit. If another worker gets
// the run meanwhile, a person may settle the call as not made. So it is not made after the wait.
func TestACallThatWaitedForItsRateLimitIsNotMadeForALostRun(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"lost": true, "still owned": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorkbench(t, Options{}, modeltest.Turn{Calls: []model.ToolCall{wish("a", "pay")}}, modeltest.Turn{Text: "done"})
				limiter := new(slowLimiter)
				pay := w.loop.tools.entries[1]
				pay.limiter = limiter
				guarded, err := pay.guard(pay.listed[0].tool, tool.Definition{Name: pay.Name, Description: pay.Description})
				if err != nil {
					t.Fatal(err)
				}
				pay.listed[0].guarded = guarded
				p := newPaper(t, w.begin())
				p.onStep = func(s state.Step) {
					if s.Kind == state.StepIntent {
						p.dead = lost
					}
				}
				_, err = w.work(p)
				if made := len(w.take()); lost != errors.Is(err, errDied) || lost != (made == 0) || lost != (limiter.back == 1) || limiter.asked != 1 {
					t.Errorf("%d calls made, %+v, %v", made, limiter, err)
				}
				if e := p.last.Mesh.Effects[0]; !lost && (e.Tries != 1 || e.DoneAt.Sub(e.At) >= time.Second) {
					t.Errorf("%d tries; the time of the wait counts as that of the call: %v to %v", e.Tries, e.At, e.DoneAt)
				}
			})
		})
	}
}

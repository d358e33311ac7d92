package agents

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/state"
)

// lostInCall returns the checkpoint of a run whose worker crashed after lint
// and pay had begun, and before their receipts were committed. A third call had
// not begun.
func lostInCall(t *testing.T, w *workbench) *state.Checkpoint {
	t.Helper()
	p := newPaper(t, w.begin())
	p.die, p.after = 2, true // the intents
	if _, err := w.work(p); !errors.Is(err, errDied) {
		t.Fatalf("error %v, want %v", err, errDied)
	}
	w.take()
	return p.last
}

func newLost(t *testing.T, policy map[string]LostCall) (*workbench, *state.Checkpoint) {
	w := newWorkbench(t, Options{ParallelTools: 2, LostCalls: policy},
		modeltest.Turn{Calls: []model.ToolCall{wish("a", "lint"), wish("b", "pay"), wish("c", "pay")}}, modeltest.Turn{Text: "done"})
	return w, lostInCall(t, w)
}

// A run with lost calls is asked to pause before it can make any call: it parks
// at once, without a call in flight.
func TestPauseBeforeLostCallsAreMadeAgain(t *testing.T) {
	t.Parallel()
	w, cp := newLost(t, map[string]LostCall{AnyTool: LostTimeOut})
	p := newPaper(t, cp)
	close(p.asked)
	p.onStep = func(state.Step) {
		if p.writes > 10 {
			p.dead = true // it would go on for ever
		}
	}
	if _, err := w.work(p); !errors.Is(err, errParked) {
		t.Fatalf("error %v after %d writes, want %v", err, p.writes, errParked)
	}
	want := map[string]state.EffectStatus{".1.1": state.EffectPending, ".1.2": state.EffectTimedOut, ".1.3": state.EffectPending}
	for key, status := range lines(p.last) {
		if want[strings.TrimPrefix(key, p.last.Doc.RunID)] != status {
			t.Errorf("call %s is %s", key, status)
		}
	}
	if len(w.take()) != 0 {
		t.Error("calls were made")
	}
	if payload, err := w.work(newPaper(t, p.last)); err != nil || payload != `{"text":"done"}` {
		t.Errorf("resumed: %s, %v", payload, err)
	}
}

// The operator decides about lost calls.
func TestLostCallsByPolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy map[string]LostCall
		lint   state.EffectStatus
		pay    state.EffectStatus
		calls  string // ids of those that were made again, or now
	}{
		"the tool's own word":        {nil, state.EffectInFlight, state.EffectUnknown, ""},
		"all others give up":         {map[string]LostCall{AnyTool: LostTimeOut}, state.EffectDone, state.EffectTimedOut, "1 3"},
		"all others repeat":          {map[string]LostCall{AnyTool: LostRepeat}, state.EffectDone, state.EffectDone, "1 2 3"},
		"the operator's word counts": {map[string]LostCall{"lint": LostTimeOut, "pay": LostRepeat}, state.EffectTimedOut, state.EffectDone, "2 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cp := newLost(t, c.policy)
			p := newPaper(t, cp)
			payload, err := w.work(p)
			end := p.next()
			var calls []string
			for key, n := range w.take() {
				calls = append(calls, strings.TrimPrefix(key, end.Doc.RunID+".1."))
				if n != 1 {
					t.Errorf("%s was called %d times", key, n)
				}
			}
			slices.Sort(calls)
			if got := strings.Join(calls, " "); got != c.calls {
				t.Errorf("called %q, want %q", got, c.calls)
			}
			if c.pay == state.EffectUnknown {
				if !errors.Is(err, errParked) || end.Doc.Status != aaif.RunAwaitingApproval {
					t.Errorf("%s, %v, status %s", payload, err, end.Doc.Status)
				}
				c.lint = state.EffectPending // it will be called again, under the same key
			} else if err != nil || payload != `{"text":"done"}` {
				t.Errorf("%s, %v", payload, err)
			}
			if e := end.Mesh.Effects; e[0].Status != c.lint || e[1].Status != c.pay {
				t.Errorf("lint is %s, pay is %s; want %s and %s", e[0].Status, e[1].Status, c.lint, c.pay)
			}
		})
	}
}

// The model gets what a person says about a call, and the run continues;
// without that it waits, on any worker.
func TestAPersonSettlesACall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome, result, reason string
		told                    string
		again                   bool
	}{
		"done, with its result": {state.SettleDone, `{"receipt":7}`, "", `{"receipt":7}`, false},
		"done":                  {state.SettleDone, "", "", `{"settled":"settled as done by human.ada"}`, false},
		"failed":                {state.SettleFailed, "", "no money", "settled as not done by human.ada: no money", false},
		"repeat":                {state.SettleRepeat, "", "", `{"pay":"KEY"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cp := newLost(t, nil)
			for range 2 { // a resume that settles nothing parks again
				p := newPaper(t, cp)
				if _, err := w.work(p); !errors.Is(err, errParked) {
					t.Fatalf("error %v, want %v", err, errParked)
				}
				cp = p.last
			}
			if calls := w.take(); len(calls) != 0 {
				t.Errorf("called while a person was to be asked: %v", calls)
			}
			ask := cp.Doc.ApprovalRequest
			var action pendingAction
			if ask == nil || json.Unmarshal(ask.PendingAction, &action) != nil || action.ToolName != "pay" || len(action.Calls) != 1 ||
				action.Calls[0].Call != "b" || action.Calls[0].Key != cp.Mesh.Effects[1].Key || !strings.Contains(ask.TriggerDescription, "pay (call b)") {
				t.Fatalf("the person is asked %+v", ask)
			}
			if left, err := cp.Settle("b", c.outcome, json.RawMessage(c.result), c.reason, "human.ada", time.Now()); err != nil || left != 0 {
				t.Fatalf("%d left, %v", left, err)
			}
			p := newPaper(t, cp)
			if payload, err := w.work(p); err != nil || payload != `{"text":"done"}` {
				t.Fatalf("%s, %v", payload, err)
			}
			end := p.next()
			key := end.Mesh.Effects[1].Key
			calls := w.take()
			want := map[string]int{end.Mesh.Effects[0].Key: 1, end.Mesh.Effects[2].Key: 1}
			if c.again {
				want[key] = 1
			}
			if !reflect.DeepEqual(calls, want) {
				t.Errorf("calls %v, want %v", calls, want)
			}
			told := end.Messages()[4]
			if got := strings.ReplaceAll(told.Content, key, "KEY"); got != c.told || told.IsError != (c.outcome == state.SettleFailed) {
				t.Errorf("the model was told %q (failure: %v), want %q", got, told.IsError, c.told)
			}
			if end.Doc.ApprovalRequest != nil || len(end.Mesh.Effects[1].Result) > 0 {
				t.Errorf("left behind: %+v, %+v", end.Doc.ApprovalRequest, end.Mesh.Effects[1])
			}
		})
	}
}

func TestLostCallsAreChecked(t *testing.T) {
	t.Parallel()
	doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","agent":{"name":"Clerk","goal":"Pay.","tools":[]}}`), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []map[string]LostCall{{"pay": LostRepeat}, {AnyTool: "guess"}} {
		if _, err := New(doc, Options{Model: modeltest.New(), LostCalls: policy}); err == nil {
			t.Errorf("%v: no error", policy)
		}
	}
}

// memories is a Memory that remembers what it was given.
type memories struct {
	whose state.Whose
	items []aaif.MemoryItem
	err   error
}

func (m *memories) Restore(_ context.Context, whose state.Whose, items []aaif.MemoryItem) error {
	m.whose, m.items = whose, items
	return m.err
}

// A run's own memories are restored; of another run's only those without an
// owner.
func TestMemoriesAreRestoredWithinTheirWalls(t *testing.T) {
	t.Parallel()
	item := func(scope aaif.MemoryScope) aaif.MemoryItem {
		return aaif.MemoryItem{Scope: scope, Key: "k", Content: string(scope)}
	}
	all := []aaif.MemoryItem{item(aaif.ScopeUser), item(aaif.ScopeSession), item(aaif.ScopeTask), item(aaif.ScopeLongTerm)}
	for name, c := range map[string]struct {
		parent *state.Parent
		want   []aaif.MemoryItem
	}{
		"its own":                     {nil, all},
		"its own, from elsewhere":     {&state.Parent{Kind: "migration", Run: "SELF"}, all},
		"those of the run it forked":  {&state.Parent{Kind: "fork", Run: "4b0a6f0c-57a0-4a39-8d2b-0d3f3c1a7c11"}, all[3:]},
		"those of nobody knows which": {&state.Parent{Kind: "import"}, all[3:]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := new(memories)
			w := newWorkbench(t, Options{Memory: m}, modeltest.Turn{Text: "done"})
			cp := w.begin()
			if cp.Mesh.Parent = c.parent; c.parent != nil && c.parent.Run == "SELF" {
				cp.Mesh.Parent.Run = cp.Doc.RunID
			}
			cp.Doc.Conversation = []aaif.Message{{Role: aaif.MessageUser, Content: "go"}}
			cp.Doc.MemorySnapshot = all
			p := newPaper(t, cp)
			if payload, err := w.work(p); err != nil || payload != `{"text":"done"}` {
				t.Fatalf("%s, %v", payload, err)
			}
			if !reflect.DeepEqual(m.items, c.want) || m.whose.Run != cp.Doc.RunID || m.whose.User != "human.ada" {
				t.Errorf("restored %v for %+v, want %v", m.items, m.whose, c.want)
			}
			if got := p.next().Doc.MemorySnapshot; !reflect.DeepEqual(got, c.want) {
				t.Errorf("the document keeps %v, want %v", got, c.want)
			}
			m.err = errors.New("no disk")
			if _, err := w.work(newPaper(t, cp)); err == nil || !strings.HasPrefix(err.Error(), "E_UNAVAILABLE") {
				t.Errorf("a memory that fails: %v", err)
			}
		})
	}
}

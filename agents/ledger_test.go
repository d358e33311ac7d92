package agents

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// during is a journal that does something while it stores a step.
type during struct {
	live
	do func()
}

func (j during) Commit(context.Context, state.Step, func(*state.Checkpoint) error) error {
	j.do()
	return nil
}

// A call may end while the write that says that it has begun is under way. Its receipt is not in
// that write, so it must not count as stored.
func TestAReceiptDuringACommitIsWrittenByTheNextOne(t *testing.T) {
	t.Parallel()
	c := &toolCall{ToolCall: model.ToolCall{ID: "c1", Name: "look"}}
	r := &run{calls: []*toolCall{c}}
	r.begin(r.calls)
	r.journal = during{do: func() { r.recordReceipt(c, state.EffectDone, model.ToolResult(c.ToolCall, json.RawMessage(`{}`))) }}
	writes := 0
	for i, want := range []int{0, 1, 1} {
		if err := r.commitCalls(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if writes != want || c.written != (i > 0) {
			t.Errorf("after commit %d: %d more writes, stored %t", i+1, writes, c.written)
		}
		r.journal = during{do: func() { writes++ }}
	}
}

// A line says of a call what identifies it, and which owner of the run wrote its last change.
func TestALineOfTheLedgerKeepsItsOwner(t *testing.T) {
	t.Parallel()
	args := json.RawMessage(`{"a":1}`)
	cp := state.New("agent.x", "task-0001", "")
	r := &run{id: "r"}
	r.turns = 2
	r.calls = r.newCalls(nil, []model.ToolCall{{ID: "c1", Name: "look", Arguments: args}})
	for i, want := range []state.Effect{
		{Status: state.EffectPending, Epoch: 1},
		{Status: state.EffectPending, Epoch: 1}, // the next owner has changed nothing
		{Status: state.EffectInFlight, Epoch: 3, Tries: 1},
	} {
		if i == 2 {
			r.begin(r.calls)
		}
		cp.Mesh.Epoch, cp.Doc.PendingToolCalls = uint64(i+1), nil
		r.saveCalls(cp)
		want.ID, want.Tool, want.Key, want.ArgsHash, want.At = "c1", "look", "r.2.1", state.ArgsHash(args), r.calls[0].effect.At
		if len(cp.Mesh.Effects) != 1 || !reflect.DeepEqual(cp.Mesh.Effects[0], want) {
			t.Errorf("under epoch %d: %+v", i+1, cp.Mesh.Effects)
		}
	}
}

// Of a call that got no answer in time it is not known whether it was done: the ledger tells it
// from one that failed.
func TestAReceiptTellsATimeoutFromAFailure(t *testing.T) {
	t.Parallel()
	l := &loop{log: slog.New(slog.DiscardHandler)}
	task := &mesh.Task{Envelope: envelope.New(envelope.TypeTask, "human.ada", "agent.x", "agent.ask", nil)}
	for kind, want := range map[tool.Kind]state.EffectStatus{tool.ErrTimeout: state.EffectTimedOut, tool.ErrFailed: state.EffectFailed, tool.ErrRefused: state.EffectFailed} {
		c := &toolCall{ToolCall: model.ToolCall{ID: "c1", Name: "look"}}
		l.recordFailure(task, &run{}, c, &tool.Error{Kind: kind, Tool: "look", Message: "no"})
		if c.effect.Status != want || c.receipt == nil {
			t.Errorf("%v: %+v", kind, c.effect)
		}
	}
}

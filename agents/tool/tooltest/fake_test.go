package tooltest_test

import (
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/tooltest"
)

func TestFakeConforms(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, func(_ *testing.T, b tooltest.Behaviour) tool.Tool {
		return &tooltest.Fake{Def: tooltest.Definition(), Behaviour: b}
	})
}

func TestFakeRecordsCalls(t *testing.T) {
	t.Parallel()
	f := &tooltest.Fake{Def: tooltest.Definition(), Result: json.RawMessage(`{"ok":true}`)}
	args := json.RawMessage(`{"n":1}`)
	got, err := f.Call(t.Context(), args)
	if err != nil || string(got) != `{"ok":true}` {
		t.Errorf("result %s, error %v", got, err)
	}
	clear(args)
	if calls := f.Calls(); len(calls) != 1 || string(calls[0]) != `{"n":1}` {
		t.Errorf("calls %s", calls)
	}
}

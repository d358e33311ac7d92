package agents_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/envelope"
)

// A document's max_iterations is for its own model, whatever turns its members need;
// what bounds them together is the tree's bound, of the extension or of the sender.
func TestTurnsOfAllMembersTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host((&member{name: "shed"}).agent())
	// Three turns for each task: two calls, and the answer.
	digs := fmt.Sprintf(builtinScript, `[{"call":[{"name":"shed","arguments":{"text":"spade"}}]},{"call":[{"name":"shed","arguments":{"text":"rake"}}]},{"say":"dug"}]`)
	w.host(newAgent(t, definition(t, `{"sc_standard":"SC-006","agent":{"name":"Digger","goal":"Dig."`+digs+`,
		"orchestration":{"subagents":[{"ref":"agent.shed","alias":"shed"}]}}}`), agents.Options{}))
	// Two turns, and two members of three turns each: eight.
	leads := fmt.Sprintf(builtinScript, `[{"call":[{"name":"digger","arguments":{"text":"here"}},{"name":"digger","arguments":{"text":"there"}}]},{"say":"done"}]`)
	for i, c := range []struct {
		beside   string
		requires string
		code     envelope.Code
	}{
		{"", "", ""},
		{`,"x-aeemesh":{"orchestration":{"tree":{"max_iterations":8}}}`, "", ""},
		{`,"x-aeemesh":{"orchestration":{"tree":{"max_iterations":7}}}`, "", envelope.CodeTreeLimit},
		{"", `{"tree":{"max_iterations":8}}`, ""},
		{"", `{"tree":{"max_iterations":7}}`, envelope.CodeTreeLimit},
		{`,"x-aeemesh":{"orchestration":{"tree":{"max_iterations":100}}}`, `{"tree":{"max_iterations":7}}`, envelope.CodeTreeLimit},
	} {
		name := fmt.Sprintf("Lead %d", i)
		w.host(newAgent(t, definition(t, `{"sc_standard":"SC-006","agent":{"name":"`+name+`","goal":"Lead."`+leads+`,
			"orchestration":{"role":"orchestrator","max_iterations":2,"subagents":[{"ref":"agent.digger","alias":"digger"}]}}`+c.beside+`}`), agents.Options{}))
		got := w.send(fmt.Sprintf("agent.lead_%d", i), `{"text":"zero"}`, sending{requires: c.requires})
		switch {
		case c.code == "" && !strings.Contains(got.payload, `"text":"done"`):
			t.Errorf("%s %s: %s %v", c.beside, c.requires, got.payload, got.err)
		case c.code != "" && (got.err == nil || got.err.Code != c.code):
			t.Errorf("%s %s: %s %v, want %s", c.beside, c.requires, got.payload, got.err, c.code)
		}
	}
}

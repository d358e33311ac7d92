package delegated_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/state"
)

// A record proves a chain only if a worker of this mesh has verified it: the first claim of a run
// ends the run with an answer to the task's own sender if its chain is not good.
func TestARecordProvesAChainThatWasVerified(t *testing.T) {
	t.Parallel()
	h := &delegated.Handed{Task: "original-1", Caller: "human.ada", Intent: "x.y.z"}
	answer := func(to, replyTo string) []byte {
		e := envelope.New(envelope.TypeError, "agent.b", to, "x.y.z", envelope.Errorf(envelope.CodeKeyInvalid, "no").Payload())
		e.ReplyTo = replyTo
		raw, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for name, c := range map[string]struct {
		h             *delegated.Handed
		change        func(*state.Checkpoint)
		proven, known bool
	}{
		"not delegated":            {nil, func(*state.Checkpoint) {}, false, true},
		"running":                  {h, func(*state.Checkpoint) {}, true, true},
		"of another platform":      {h, func(c *state.Checkpoint) { c.Mesh.Parent = &state.Parent{Kind: "migration"} }, false, false},
		"a fork":                   {h, func(c *state.Checkpoint) { c.Mesh.Parent = &state.Parent{Kind: "fork"} }, false, false},
		"ended":                    {h, func(c *state.Checkpoint) { c.Doc.Status, c.Mesh.Reply = aaif.RunFailed, answer(h.Caller, h.Task) }, true, true},
		"delegated further":        {h, func(c *state.Checkpoint) { c.Doc.Status, c.Mesh.Handed = aaif.RunCompleted, &state.Handed{} }, true, true},
		"ended, its chain refused": {h, func(c *state.Checkpoint) { c.Doc.Status, c.Mesh.Reply = aaif.RunFailed, answer("agent.a", "task-0002") }, false, true},
		"ended with an odd answer": {h, func(c *state.Checkpoint) { c.Doc.Status, c.Mesh.Reply = aaif.RunFailed, answer(h.Caller, "task-0002") }, false, true},
		"ended without its answer": {h, func(c *state.Checkpoint) { c.Doc.Status = aaif.RunFailed }, false, true},
		"ended on another platform": {h, func(c *state.Checkpoint) {
			c.Doc.Status, c.Mesh.Parent, c.Mesh.Reply = aaif.RunFailed, &state.Parent{Kind: "migration"}, answer(h.Caller, h.Task)
		}, false, false},
	} {
		cp := state.New("agent.b", "task-0002", "")
		cp.Doc.Status = aaif.RunRunning
		c.change(cp)
		if proven, known := c.h.Proven(cp); proven != c.proven || known != c.known {
			t.Errorf("%s: proven %t, known %t", name, proven, known)
		}
	}
}

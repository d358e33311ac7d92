package agents

import (
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh"
)

// lanes fits the agent to what its node has.
//
// A node without a durable lane serves an agent live: there its concurrency
// holds for each worker, retrying is the sender's affair, and whoever sends a
// task waits for its result. An agent whose state has to be encrypted is not
// hosted where it would be stored in the clear (AAIF, Compliance Controls).
func (a *Agent) lanes(node *mesh.Node) error {
	d := node.Durable()
	if d == nil || a.LiveOnly {
		if a.Async && a.log != nil {
			a.log.Warn("runtime.async_execution is not kept: there is no durable lane here", "entity", a.Entity)
		}
		a.Async, a.MeshConcurrency = false, 0
		return nil
	}
	if a.encrypt && a.Seal == nil && d.Codec.Seal == nil {
		return fmt.Errorf("agent %s: compliance.pii_handling encrypt: its runs would be stored in the clear; give a key for their state, or keep the agent off the durable lane", a.Entity)
	}
	return nil
}

// encryption is what there is to say about compliance.pii_handling encrypt.
func (a *Agent) encryption(def *aaif.Definition, opts Options) []aaif.Problem {
	c := def.Agent.Compliance
	if c == nil || c.PIIHandling != aaif.PIIEncrypt {
		return nil
	}
	a.encrypt = true
	p := aaif.Problem{
		Pointer: "/agent/compliance/pii_handling", Rule: RuleEncrypt, Severity: aaif.SeverityWarning,
		Message: "the state of its runs, and what its tools return, is encrypted where it is stored; tasks and results are stored as they are sent",
	}
	if opts.StateKeys == nil {
		p.Severity = aaif.SeverityError
		p.Message = "nothing is encrypted without a key for the state of its runs; without one it takes no durable tasks"
		p.Hint = "name a key"
	}
	return []aaif.Problem{p}
}

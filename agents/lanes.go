package agents

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh"
)

// Accept fits the agent to what its node has, and decides whether it may be
// hosted there; what it has to say is added to Notices. Run does it too, so only
// those call it who show the notices before. Twice is as good as once.
//
// A node whose durable lane is still to come serves an agent live until then, and
// a notice says what holds only from then on. A node without a durable lane serves an agent live: then no state is kept,
// retrying is the sender's affair, whoever sends a task waits for its result,
// and the document's concurrency holds for each worker alone. An agent that
// requires more is refused at safety levels strict and regulated. One whose state
// has to be encrypted is not hosted where it would be stored in the clear (AAIF,
// Compliance Controls).
func (a *Agent) Accept(node *mesh.Node) error {
	if a.accepted {
		return nil
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	d := node.Durable()
	inTheClear := d != nil && a.encrypt && a.Seal == nil && d.Codec.Seal == nil // its runs would be stored so
	var err error
	switch {
	case d == nil || a.LiveOnly:
		err = a.acceptLive("")
	case inTheClear && d.There():
		return fmt.Errorf("agent %s: compliance.pii_handling encrypt: its runs would be stored in the clear; give a key for their state, or keep the agent off the durable lane", a.Entity)
	case inTheClear:
		a.LiveOnly = true
		err = a.acceptLive("")
	case !d.There():
		async, limit, negotiated := a.Async, a.MeshConcurrency, a.Negotiation
		err = a.acceptLive(", until the durable lane is there")
		a.Async, a.MeshConcurrency, a.Negotiation = async, limit, negotiated
	}
	if err != nil {
		return tellRefusal(node, err)
	}
	a.accepted = true
	return nil
}

// acceptLive is Accept without the durable lane. What is lacking is so until that
// comes, where it is still to come.
func (a *Agent) acceptLive(until string) error {
	var lacking []aaif.Problem
	if a.Async {
		lacking = append(lacking, aaif.Problem{Pointer: "/agent/runtime/async_execution", Rule: RuleLane, Severity: aaif.SeverityWarning,
			Message: "tasks are done while their senders wait: there is no durable lane here" + until})
	}
	if a.MeshConcurrency > 0 {
		lacking = append(lacking, aaif.Problem{Pointer: "/agent/runtime/concurrency", Rule: RuleLane, Severity: aaif.SeverityWarning,
			Message: fmt.Sprintf("%d at once holds for each worker alone: only with JetStream do the workers of an agent count together%s", a.MeshConcurrency, until)})
	}
	a.Async, a.MeshConcurrency = false, 0
	if a.negotiate == nil { // put together by hand
		a.Notices = append(a.Notices, lacking...)
		return nil
	}
	known := a.Negotiation.Problems()
	a.Negotiation = a.negotiate(false)
	for _, p := range a.Negotiation.Problems() {
		if !slices.Contains(known, p) {
			lacking = append(lacking, p)
		}
	}
	var bad []error
	if err := a.Negotiation.Err(); err != nil {
		bad = append(bad, err)
	}
	if refuses(a.Negotiation.Safety) {
		for i := range lacking {
			if lacking[i].Pointer == "/agent/runtime/concurrency" { // a runtime MUST NOT exceed it
				lacking[i].Severity = aaif.SeverityError
				bad = append(bad, fmt.Errorf("safety level %s: %s", a.Negotiation.Safety, lacking[i]))
			}
		}
	}
	a.Notices = append(a.Notices, lacking...)
	if err := a.refusal(a.Negotiation, bad); err != nil {
		return fmt.Errorf("agent %s: %w", a.Entity, err)
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

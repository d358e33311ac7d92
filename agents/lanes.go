package agents

import (
	"fmt"
	"log/slog"

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
	if a.undeclared && d != nil && d.Slots == nil {
		a.MeshConcurrency = 0 // no author has asked for it, and it cannot be counted here
	}
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
	if a.MeshConcurrency > 0 && !a.undeclared { // else no author has asked for it
		p := aaif.Unhonoured("/agent/runtime/concurrency", RuleLane, aaif.SeverityWarning,
			fmt.Sprintf("%d at once holds for each worker alone: only with JetStream do the workers of an agent count together%s", a.MeshConcurrency, until))
		p.Hint = ""
		lacking = append(lacking, p)
	}
	a.Async, a.MeshConcurrency = false, 0
	if a.negotiate == nil { // put together by hand
		a.Notices = append(a.Notices, lacking...)
		return nil
	}
	known := len(a.verdict.Notices)
	a.verdict.add(lacking...)
	was := a.Negotiation.Problems()
	a.Negotiation = a.negotiate(false)
	a.verdict.negotiated(a.Negotiation, was...)
	a.Notices = append(a.Notices, a.verdict.Notices[known:]...)
	if err := a.refused(); err != nil {
		return fmt.Errorf("agent %s: %w", a.Entity, err)
	}
	return nil
}

// encrypts is true of a definition that wants the state of its runs encrypted.
func encrypts(def *aaif.Definition) bool {
	c := def.Agent.Compliance
	return c != nil && c.PIIHandling == aaif.PIIEncrypt
}

const piiHandling = "/agent/compliance/pii_handling"

// encryption is what there is to say about compliance.pii_handling encrypt.
func encryption(def *aaif.Definition, opts Options) []aaif.Problem {
	switch {
	case !encrypts(def):
		return nil
	case opts.StateKeys == nil:
		p := aaif.Unhonoured(piiHandling, RuleEncrypt, aaif.SeverityError, "nothing is encrypted without a key for the state of its runs")
		p.Hint = "name a key: worker --state-key"
		return []aaif.Problem{p}
	}
	return []aaif.Problem{{Pointer: piiHandling, Rule: RuleEncrypt, Severity: aaif.SeverityNote,
		Message: "the state of its runs, and what its tools return, is encrypted where it is stored; tasks and results are stored as they are sent"}}
}

package agents

import (
	"cmp"
	"fmt"
	"log/slog"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh"
)

// Accept adapts the agent to its node and decides whether it may be hosted
// there; its findings are added to Notices. Run calls it too, so a caller needs
// it only to show the notices first. Calling it twice has no further effect.
//
// If the node's durable lane is not ready yet, the agent is served live until
// it is, and a notice says what holds only from then on. A node without a
// durable lane serves an agent live: no state is kept, the sender retries, the
// sender waits for the result, and the document's concurrency holds for each
// worker separately. An agent that requires more is refused at safety levels
// strict and regulated. An agent whose state must be encrypted is not hosted
// where it would be stored in the clear (AAIF, Compliance Controls); until the
// lane is available, and if it stays off the lane, it is served live.
func (a *Agent) Accept(node *mesh.Node) error {
	if a.accepted {
		return nil
	}
	a.log = cmp.Or(a.log, slog.New(slog.DiscardHandler))
	d := node.Durable()
	inTheClear := d != nil && a.MustSeal && a.Seal == nil && d.Codec.Seal == nil // checkpoints would be stored unencrypted
	if a.undeclared && d != nil && d.Slots == nil {
		a.MeshConcurrency = 0 // the limit is a default, not the author's, and cannot be counted here
	}
	var err error
	switch {
	case d == nil || a.LiveOnly:
		err = a.acceptLive("")
	case inTheClear && d.Available():
		return fmt.Errorf("agent %s: compliance.pii_handling encrypt: its runs would be stored in the clear; give a key for their state, or keep the agent off the durable lane", a.Entity)
	case inTheClear:
		a.LiveOnly = true
		err = a.acceptLive("")
	case !d.Available():
		async, limit, negotiated := a.Async, a.MeshConcurrency, a.Negotiation
		err = a.acceptLive(", until the durable lane is available")
		a.Async, a.MeshConcurrency, a.Negotiation = async, limit, negotiated
	}
	if err != nil {
		return tellRefusal(node, err)
	}
	a.accepted = true
	return nil
}

// acceptLive is Accept for a node without the durable lane. If the lane is
// still to come, until says so, and the notices say that a feature is missing
// until then.
func (a *Agent) acceptLive(until string) error {
	var lacking []aaif.Problem
	if a.Async {
		lacking = append(lacking, aaif.Problem{Pointer: "/agent/runtime/async_execution", Rule: RuleLane, Severity: aaif.SeverityWarning,
			Message: "tasks are done while their senders wait: there is no durable lane here" + until})
	}
	if a.MeshConcurrency > 0 && !a.undeclared { // the author declared a limit
		p := aaif.Unhonoured("/agent/runtime/concurrency", RuleLane, aaif.SeverityWarning,
			fmt.Sprintf("%d at once holds for each worker alone: only with JetStream do the workers of an agent count together%s", a.MeshConcurrency, until))
		p.Hint = ""
		lacking = append(lacking, p)
	}
	a.Async, a.MeshConcurrency = false, 0
	if a.negotiate == nil { // the Agent was assembled without New
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

// encrypts reports whether a definition requires the state of its runs to be
// encrypted.
func encrypts(def *aaif.Definition) bool {
	c := def.Agent.Compliance
	return c != nil && c.PIIHandling == aaif.PIIEncrypt
}

const piiHandling = "/agent/compliance/pii_handling"

// encryption returns the notices about compliance.pii_handling encrypt.
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

package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// Refusal is the error of an agent that is not hosted although its document is
// valid: the document requires something that this runtime lacks, and its
// safety level allows nothing to be left out (AAIF, Capability Negotiation).
type Refusal struct {
	Entity, AgentID, Version string
	Safety                   aaif.SafetyLevel
	Unsatisfied              []string // required capabilities, sorted
	Unevaluated              []aaif.Language
	Unkept                   []string // the places that an operator could accept with Options.AcceptUnhonoured
	// Permits maps a place to the worker flag that would permit a tool which
	// the operator's policy refuses, such as "--allow api.example".
	Permits map[string]string
	Err     error // all reasons for the refusal
}

// Error lists the reasons.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

// Acceptable returns Unkept and Permits: what an operator could accept or permit.
func (r *Refusal) Acceptable() (unkept []string, permits map[string]string) {
	return r.Unkept, r.Permits
}

// MustAudit reports whether the refusal MUST be audit-logged: at safety level
// regulated.
func (r *Refusal) MustAudit() bool { return r.Safety == aaif.SafetyRegulated }

// log writes the refusal to the operator's log. Until the mesh has an audit
// stream, this line and [Refusal.Tell] are the audit log of refusals.
func (r *Refusal) log(log *slog.Logger) {
	if r.MustAudit() {
		log.Error("agent refused", "audit", true, "entity", r.Entity, "agent_id", r.AgentID, "version", r.Version,
			"safety_level", string(r.Safety), "unsatisfied", r.Unsatisfied, "unevaluated", r.Unevaluated, "err", r.Err)
	}
}

// AlertRefused is the code of the alert about a refused agent.
const AlertRefused = "AGENT_REFUSED"

// Tell publishes a refusal that MUST be audit-logged as an alert on
// bus.mesh.alert; for other refusals it does nothing.
func (r *Refusal) Tell(node *mesh.Node) error {
	if !r.MustAudit() {
		return nil
	}
	payload, err := json.Marshal(struct {
		Code        string          `json:"code"`
		Message     string          `json:"message"`
		Entity      string          `json:"entity"`
		AgentID     string          `json:"agent_id,omitempty"`
		Version     string          `json:"version,omitempty"`
		Safety      string          `json:"safety_level"`
		Unsatisfied []string        `json:"unsatisfied,omitempty"`
		Unevaluated []aaif.Language `json:"unevaluated_languages,omitempty"`
	}{AlertRefused, clip.Text(r.Err.Error(), 2048), r.Entity, r.AgentID, r.Version, string(r.Safety), r.Unsatisfied, r.Unevaluated})
	if err != nil {
		return fmt.Errorf("report the refusal: %w", err)
	}
	return node.Broadcast(mesh.BusAlert, intents.AlertRaised, "", payload)
}

// MetaAccepted is the key of Agent.Accepted, joined by commas, in the agent's
// NATS micro metadata.
const MetaAccepted = "accepted_unhonoured"

// AlertAccepted is the code of the alert about an agent that is hosted although
// this runtime does not honour a binding field of its document.
const AlertAccepted = "AGENT_UNHONOURED_ACCEPTED"

// tellAccepted writes to the log and publishes as an alert which unhonoured
// fields the operator has accepted, before the agent is served.
func (a *Agent) tellAccepted(node *mesh.Node) error {
	if len(a.Accepted) == 0 {
		return nil
	}
	a.log.Warn("agent hosted with what the operator accepts", "audit", true, "entity", a.Entity, "agent_id", a.AgentID, "version", a.Version,
		"safety_level", string(a.Negotiation.Safety), "accepted", a.Accepted)
	payload, err := json.Marshal(struct {
		Code     string   `json:"code"`
		Message  string   `json:"message"`
		Entity   string   `json:"entity"`
		AgentID  string   `json:"agent_id,omitempty"`
		Version  string   `json:"version,omitempty"`
		Safety   string   `json:"safety_level"`
		Accepted []string `json:"accepted"`
	}{AlertAccepted, clip.Text("the operator accepts that this is not done: "+strings.Join(a.Accepted, ", "), 2048), a.Entity, a.AgentID, a.Version, string(a.Negotiation.Safety), a.Accepted})
	if err != nil {
		return fmt.Errorf("report what is accepted: %w", err)
	}
	return node.Broadcast(mesh.BusAlert, intents.AlertRaised, "", payload)
}

// tellRefusal calls [Refusal.Tell] if err is a refusal. It returns err, joined
// with the error of Tell.
func tellRefusal(node *mesh.Node, err error) error {
	var r *Refusal
	if !errors.As(err, &r) {
		return err
	}
	return errors.Join(err, r.Tell(node))
}

// refused returns the refusal that follows from the agent's verdict; nil if the
// agent is hosted.
func (a *Agent) refused() error { return a.refusal(a.verdict.Err()) }

// refusal wraps err as a refusal of the agent; nil for nil.
func (a *Agent) refusal(err error) error {
	if err == nil {
		return nil
	}
	n := a.Negotiation
	r := &Refusal{Entity: a.Entity, AgentID: a.AgentID, Version: a.Version, Safety: n.Safety, Unsatisfied: n.Unsatisfied, Unevaluated: n.Unevaluated,
		Unkept: slices.Clone(a.verdict.Unkept), Permits: a.permits, Err: err}
	r.log(a.log)
	return r
}

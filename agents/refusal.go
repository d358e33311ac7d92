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

// Refusal is why an agent is not hosted although its document is valid: it
// requires what this runtime lacks, and its safety level lets nothing be left
// out (AAIF, Capability Negotiation).
type Refusal struct {
	Entity, AgentID, Version string
	Safety                   aaif.SafetyLevel
	Unsatisfied              []string // required capabilities, sorted
	Unevaluated              []aaif.Language
	Unkept                   []string // places of what an operator may accept: Options.AcceptUnhonoured
	// Permits are, by place, the flags of a worker that let a tool be had which its
	// operator's policy refuses: "--allow api.example".
	Permits map[string]string
	Err     error // everything that is lacking
}

// Error lists what is lacking.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the list.
func (r *Refusal) Unwrap() error { return r.Err }

// MustAudit reports whether the refusal MUST be audit-logged: at safety level
// regulated.
func (r *Refusal) MustAudit() bool { return r.Safety == aaif.SafetyRegulated }

// log writes the refusal to the operator's log. Until the mesh keeps an audit
// stream, this line and [Refusal.Tell] are the audit log of refusals.
func (r *Refusal) log(log *slog.Logger) {
	if r.MustAudit() {
		log.Error("agent refused", "audit", true, "entity", r.Entity, "agent_id", r.AgentID, "version", r.Version,
			"safety_level", string(r.Safety), "unsatisfied", r.Unsatisfied, "unevaluated", r.Unevaluated, "err", r.Err)
	}
}

// AlertRefused is the code of the alert that tells of a refusal.
const AlertRefused = "AGENT_REFUSED"

// Tell raises the alert on bus.mesh.alert that a refusal is where it MUST be
// audit-logged; otherwise it does nothing.
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
		return fmt.Errorf("tell of the refusal: %w", err)
	}
	return node.Broadcast(mesh.BusAlert, intents.AlertRaised, "", payload)
}

// MetaAccepted is the metadata of an agent, in what NATS micro shows, that lists
// what the operator has accepted: Agent.Accepted, with commas.
const MetaAccepted = "accepted_unhonoured"

// AlertAccepted is the code of the alert that tells of an agent that is hosted
// although this runtime does not do what its document makes binding.
const AlertAccepted = "AGENT_UNHONOURED_ACCEPTED"

// tellAccepted tells the log and the mesh what the operator has accepted of an
// agent that is about to be served.
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
		return fmt.Errorf("tell what is accepted: %w", err)
	}
	return node.Broadcast(mesh.BusAlert, intents.AlertRaised, "", payload)
}

// tellRefusal is [Refusal.Tell] where err is a refusal; it returns err, and what
// kept it from being told.
func tellRefusal(node *mesh.Node, err error) error {
	var r *Refusal
	if !errors.As(err, &r) {
		return err
	}
	return errors.Join(err, r.Tell(node))
}

// refused is the refusal of an agent by its verdict; nil if it is hosted.
func (a *Agent) refused() error { return a.refusal(a.verdict.Err()) }

// refusal is the error of an agent that is not hosted because of err; nil for nil.
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

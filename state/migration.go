package state

import (
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Migration is the state of a run's transfer, on the side that holds the checkpoint. It
// is nil for a run that was never transferred.
type Migration struct {
	ID    string `json:"id"` // of the handoff: the jti of its token
	Phase Phase  `json:"phase"`
	// Status is the status before the transfer, with which the run continues on either
	// side.
	Status aaif.RunStatus `json:"status,omitempty"`

	Issuer string `json:"issuer,omitempty"` // the entity that vouches for the run: the token's iss
	Source string `json:"source,omitempty"` // platform, or instance within a mesh
	Target string `json:"target,omitempty"` // the same: the token's aud
	To     string `json:"to,omitempty"`     // the requested destination: an instance, an https URL, "file"
	By     string `json:"by,omitempty"`     // who requested it
	// AmidCalls lets a run that goes to another platform leave amid its calls of other agents: the
	// request said how long to wait for them (wait_ms). Earlier releases do not write it.
	AmidCalls bool `json:"amid_calls,omitempty"`
	// Key is the public key of a source without a key of its own, within a mesh whose
	// members trust their store.
	Key string `json:"key,omitempty"`

	Since  time.Time `json:"since,omitzero"` // when the phase began
	Detail string    `json:"detail,omitempty"`
}

// Phase is the phase of a migration.
type Phase string

// The phases of a migration at its source. Each is entered by a compare-and-swap of the
// run's record, so that of two workers that try, one fails. Before the phase committed
// the source may take the run back on its own; from then on only the target's verdict
// decides.
const (
	PhaseAsked     Phase = "asked"     // requested: the run continues, or waits, until a worker transfers it
	PhaseCaptured  Phase = "captured"  // the run is stopped: this is the state that is transferred
	PhaseStaged    Phase = "staged"    // the target has the whole state, and waits for the source to commit
	PhaseCommitted Phase = "committed" // the source has released the run; the target's verdict decides
	PhaseRelaying  Phase = "relaying"  // the target runs it; the source relays its replies
	PhaseAborted   Phase = "aborted"   // the source has taken the run back
	PhaseMoved     Phase = "moved"     // within a mesh: another worker has claimed it
)

// The phases at the target, in its own record of the handoff. A handoff is either
// accepted or refused, never both.
const (
	PhaseReceiving Phase = "receiving" // the token is used; the document is being received
	PhaseAccepted  Phase = "accepted"  // the target owns the run
	PhaseRunning   Phase = "running"   // the target has queued it for its workers
	PhaseRefused   Phase = "refused"   // the target will never run it
)

// Away reports whether another platform has the run or may have it: no worker here may
// continue it on its own.
func (m *Migration) Away() bool {
	if m == nil {
		return false
	}
	switch m.Phase {
	case PhaseCommitted, PhaseRelaying:
		return true
	}
	return false
}

// Awaits reports whether a run that is awaiting_approval has something to wait for: a
// person's statement about a tool call, an answer, a time, or an approval that its
// handler has requested. Otherwise no event would ever wake it.
func (c *Checkpoint) Awaits() bool {
	return c.Doc.ApprovalRequest != nil || len(c.Unknown()) > 0 || c.WakesItself()
}

// WakesItself reports whether a run that is awaiting_approval goes on at an answer or a time: it
// needs no person's command.
func (c *Checkpoint) WakesItself() bool {
	m := &c.Mesh
	return (slices.ContainsFunc(m.Waits, Wait.Wakes) || !m.WakeAt.IsZero()) && len(c.Unknown()) == 0
}

// After returns the status with which a run continues after a transfer, here or at the
// target: the status before the transfer, unless the run waited for something that has
// arrived meanwhile.
func (c *Checkpoint) After() aaif.RunStatus {
	switch m := c.Mesh.Migration; {
	case m == nil || m.Status == "" || m.Status == aaif.RunMigrating || Terminal(m.Status):
		return aaif.RunRunning
	case m.Status == aaif.RunAwaitingApproval && !c.Awaits():
		return aaif.RunRunning
	default:
		return m.Status
	}
}

// Outbound returns the checkpoint for another platform: with both platforms in
// provenance, and without data that is internal to this mesh, such as a stack trace
// (AAIF, Security Considerations), the sequence of a message, or the tasks that others
// here do for the run. The caller has to capture it by [Codec.Encode].
// [Checkpoint.Inbound] says what the other platform accepts of it.
//
// release is the version of this program. provenance.captured_by is the requester of the
// transfer.
func (c *Checkpoint) Outbound(source, target, release string) *Checkpoint {
	out := c.Clone()
	out.Doc.Provenance = &aaif.StateProvenance{SourcePlatform: source, TargetPlatform: target, SourceRuntimeVersion: release}
	if m := c.Mesh.Migration; m != nil {
		out.Doc.Provenance.CapturedBy = m.By
	}
	if out.Doc.Error != nil {
		out.Doc.Error.StackTrace = ""
	}
	out.Doc.Status = aaif.RunMigrating
	m := &out.Mesh
	m.Owner, m.Work, m.Redelivered, m.Claims = "", 0, 0, 0
	if m.Pending != string(aaif.RunPaused) { // a requested pause is transferred too
		m.Pending = ""
	}
	if c.WakesItself() {
		out.Doc.ApprovalRequest = nil // it is about what is removed
	}
	m.Calls, m.Waits, m.WakeAt, m.Noted, m.Due = nil, nil, time.Time{}, nil, time.Time{}
	m.Plan = withoutChosen(m.Plan)
	if m.Migration != nil {
		m.Migration = &Migration{ID: m.Migration.ID, Phase: PhaseCaptured, Status: m.Migration.Status, Source: source, Target: target}
	}
	return out
}

package state

import (
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Migration is how far the move of a run has come, on the side that holds the
// checkpoint. It is nil for a run that nobody moves or has moved.
type Migration struct {
	ID    string `json:"id"` // of the handoff: the jti of its token
	Phase Phase  `json:"phase"`
	// Status is what the run was doing before, and what it goes on with, on
	// either side.
	Status aaif.RunStatus `json:"status,omitempty"`

	Issuer string `json:"issuer,omitempty"` // the entity that vouches for the run: the token's iss
	Source string `json:"source,omitempty"` // platform, or instance within a mesh
	Target string `json:"target,omitempty"` // likewise: the token's aud
	To     string `json:"to,omitempty"`     // where the run was asked to go: an instance, an https URL, "file"
	By     string `json:"by,omitempty"`     // who asked
	// Key is the public key of a source that has none of its own, within a mesh
	// whose members trust whatever is in its store.
	Key string `json:"key,omitempty"`

	Since  time.Time `json:"since,omitzero"` // when the phase began
	Detail string    `json:"detail,omitempty"`
}

// Phase is how far a migration has come.
type Phase string

// The phases of a migration at its source. Each is a compare-and-swap of the
// run's record, so of two workers that act on it, one finds out that it is too
// late. Up to committed the source alone may take the run back; from then on
// only the target's word decides.
const (
	PhaseAsked     Phase = "asked"     // the run goes on, or waits, until a worker moves it
	PhaseCaptured  Phase = "captured"  // the run stands still: this is the state that moves
	PhaseStaged    Phase = "staged"    // the target has all of it, and waits for the source's word
	PhaseCommitted Phase = "committed" // the source has let go; the target's word decides
	PhaseRelaying  Phase = "relaying"  // the target runs it; its replies come back through the source
	PhaseAborted   Phase = "aborted"   // the run is back
	PhaseMoved     Phase = "moved"     // within a mesh: another worker has claimed it
)

// The phases at the target, of the record that it keeps of the handoff. Accepted
// and refused exclude one another for ever.
const (
	PhaseReceiving Phase = "receiving" // the token is used; the rest is on its way
	PhaseAccepted  Phase = "accepted"  // the target owns the run
	PhaseRunning   Phase = "running"   // and has given it to its workers
	PhaseRefused   Phase = "refused"   // the target will never run it
)

// Away reports whether the run is on its way to another platform, or there:
// no worker here may go on with it by itself.
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

// Awaits reports whether there is something that a run which is awaiting_approval
// waits for: a person's word on a tool call, an answer or a time, or an approval that
// its handler has asked for. Nothing would wake one that waits for nothing.
func (c *Checkpoint) Awaits() bool {
	m := &c.Mesh
	return c.Doc.ApprovalRequest != nil || len(c.Unknown()) > 0 || len(m.Waits) > 0 || !m.WakeAt.IsZero()
}

// After is what a run that is being moved goes on with, here or where it came to: what
// it was doing before, unless that was to wait for something that has come meanwhile.
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

// Outbound is what another platform gets of a checkpoint: with the platforms in
// provenance, and without what is this mesh's own business, such as a stack
// trace (AAIF, Security Considerations), the place of a message, or what others
// here do for the run. The clone is to be captured, by [Codec.Encode]. What the
// other one takes over of it says [Checkpoint.Inbound].
//
// release is the version of the program that writes it. Who asked for the move is
// who it was captured by.
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
	m.Owner, m.Work, m.Claims = "", 0, 0
	if m.Want != string(aaif.RunPaused) { // a pause goes along
		m.Want = ""
	}
	m.Calls, m.Waits, m.WakeAt, m.Noted = nil, nil, time.Time{}, nil
	m.Plan = withoutChosen(m.Plan)
	if m.Migration != nil {
		m.Migration = &Migration{ID: m.Migration.ID, Phase: PhaseCaptured, Status: m.Migration.Status, Source: source, Target: target}
	}
	return out
}

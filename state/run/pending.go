package run

import (
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// A pending request is a pause or a move that is not carried out yet. It stays in the record
// (Mesh.Pending) until the run can stop. If both are pending, a move within the mesh waits until
// the run is resumed, and a move to another platform transfers the pause, too, so that the run is
// paused there.

// Remote reports whether a destination is another platform, given by its URL.
func Remote(to string) bool { return strings.Contains(to, "://") }

// outOfMesh reports whether a destination is outside of this mesh.
func outOfMesh(to string) bool { return Remote(to) || to == intents.MigrateFile }

// Leaving reports whether a move out of the mesh is pending.
func Leaving(c *state.Checkpoint) bool {
	m := c.Mesh.Migration
	return c.Mesh.Pending == string(aaif.RunMigrating) && m != nil && outOfMesh(m.To)
}

// movePending reports whether a move is pending, of any kind.
func movePending(c *state.Checkpoint) bool {
	return c.Mesh.Migration != nil && c.Mesh.Migration.Phase == state.PhaseAsked
}

// pausePending reports whether a pause is pending.
func pausePending(c *state.Checkpoint) bool {
	return c.Mesh.Pending == string(aaif.RunPaused) || Leaving(c) && c.Mesh.Migration.Status == aaif.RunPaused
}

func requestPause(c *state.Checkpoint) {
	if Leaving(c) {
		c.Mesh.Migration.Status = aaif.RunPaused
		return
	}
	c.Mesh.Pending = string(aaif.RunPaused)
}

// withdrawPause reports whether a pause was pending.
func withdrawPause(c *state.Checkpoint) bool {
	switch {
	case !pausePending(c):
		return false
	case Leaving(c):
		c.Mesh.Migration.Status = ""
	default:
		c.Mesh.Pending = ""
		resumePendingMove(c)
	}
	return true
}

// requestMove makes the move pending that Migration describes. paused says that a pause
// was pending before.
func requestMove(c *state.Checkpoint, paused bool) (status string) {
	if c.Mesh.Pending = string(aaif.RunMigrating); paused {
		requestPause(c)
	}
	return pendingStatus(c)
}

// pendingStatus returns the status in the answer to a pause or a move: the pending request, or the
// run's status.
func pendingStatus(c *state.Checkpoint) string {
	switch {
	case pausePending(c):
		return "pausing"
	case c.Mesh.Pending == string(aaif.RunMigrating):
		return "moving"
	}
	return string(c.Doc.Status)
}

// withdrawMove ends a pending move; a pending pause stays.
func withdrawMove(c *state.Checkpoint) {
	paused := pausePending(c)
	if c.Mesh.Pending = ""; paused {
		c.Mesh.Pending = string(aaif.RunPaused)
	}
}

// resumePendingMove lets a run that goes on go where it was asked to go while it waited,
// unless a pause is pending.
func resumePendingMove(c *state.Checkpoint) {
	if m := c.Mesh.Migration; movePending(c) && !pausePending(c) && !outOfMesh(m.To) {
		m.Status = aaif.RunRunning
		c.Mesh.Pending = string(aaif.RunMigrating)
	}
}

// Stay ends a pending move out of the mesh: the run waits for answers that come to this
// one.
func Stay(c *state.Checkpoint, now time.Time) {
	if !Leaving(c) {
		return
	}
	withdrawMove(c)
	abort(c, now, "the run waits for others")
}

// StayForApproval is Stay for a run that is about to wait for an approval, if it needs an answer
// after that. An order to move it that comes later is refused.
func StayForApproval(c *state.Checkpoint, now time.Time) {
	if unread(c) {
		Stay(c, now)
	}
}

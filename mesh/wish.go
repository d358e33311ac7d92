package mesh

import (
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// What is asked of a run that goes on, or that waits for somebody, is a wish: it
// is in the record (Mesh.Want) until the run comes to a point where it can stop.
// There is one place for it, and a pause and a move may both be asked for. Then a
// move within the mesh waits until the run is resumed; one to another platform
// takes the pause along, and the run is paused there.

// leaves reports whether a run is asked to move out of the mesh.
func leaves(c *state.Checkpoint) bool {
	m := c.Mesh.Migration
	return c.Mesh.Want == string(aaif.RunMigrating) && m != nil && (remoteTo(m.To) || m.To == intents.MigrateFile)
}

// moveAsked reports whether a run is asked to move, and has not stopped for it.
func moveAsked(c *state.Checkpoint) bool {
	return c.Mesh.Migration != nil && c.Mesh.Migration.Phase == state.PhaseAsked
}

// pauseWished reports whether a run is asked to pause.
func pauseWished(c *state.Checkpoint) bool {
	return c.Mesh.Want == string(aaif.RunPaused) || leaves(c) && c.Mesh.Migration.Status == aaif.RunPaused
}

// wishPause asks a run to pause.
func wishPause(c *state.Checkpoint) {
	if leaves(c) {
		c.Mesh.Migration.Status = aaif.RunPaused
		return
	}
	c.Mesh.Want = string(aaif.RunPaused)
}

// unwishPause takes that back. It reports whether there was such a wish.
func unwishPause(c *state.Checkpoint) bool {
	switch {
	case !pauseWished(c):
		return false
	case leaves(c):
		c.Mesh.Migration.Status = ""
	default:
		c.Mesh.Want = ""
		resumeMoves(c)
	}
	return true
}

// wishMove asks a run to move where its Migration says. paused is whether it was
// asked to pause before.
func wishMove(c *state.Checkpoint, paused bool) (status string) {
	if c.Mesh.Want = string(aaif.RunMigrating); !paused {
		return "moving"
	}
	wishPause(c)
	return "pausing"
}

// unwishMove takes that back; a pause that is asked for stays.
func unwishMove(c *state.Checkpoint) {
	paused := pauseWished(c)
	if c.Mesh.Want = ""; paused {
		c.Mesh.Want = string(aaif.RunPaused)
	}
}

// resumeMoves sees to it that a run that goes on goes where it was asked to go
// while it waited, unless it is to pause first.
func resumeMoves(c *state.Checkpoint) {
	if m := c.Mesh.Migration; moveAsked(c) && !pauseWished(c) && m.To != intents.MigrateFile && !remoteTo(m.To) {
		m.Status = aaif.RunRunning
		c.Mesh.Want = string(aaif.RunMigrating)
	}
}

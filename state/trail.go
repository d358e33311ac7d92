package state

import "slices"

// trailLimit is how many checkpoints before it a checkpoint knows. So many may be
// written by others between two tries of one write.
const trailLimit = 6

// mark is enough of a state_id to tell a run's checkpoints apart.
func mark(stateID string) string {
	const length = len("01234567-89ab")
	return stateID[:min(len(stateID), length)]
}

// trail is the trail of the checkpoint that is written over c.
func (c *Checkpoint) trail() []string {
	if c.Doc.StateID == "" {
		return nil
	}
	trail := append(make([]string, 0, trailLimit), mark(c.Doc.StateID))
	return append(trail, c.Mesh.Trail[:min(len(c.Mesh.Trail), trailLimit-1)]...)
}

// Follows reports whether c was written over other, perhaps with others between
// them. Known is false where c does not tell: where too many are between them, or a
// release wrote one that kept no trail.
//
// So whoever wrote other, and never heard whether it was stored, learns it from the
// run's newest checkpoint alone.
func (c *Checkpoint) Follows(other *Checkpoint) (follows, known bool) {
	has := func(m string) bool { return mark(c.Doc.StateID) == m || slices.Contains(c.Mesh.Trail, m) }
	if has(mark(other.Doc.StateID)) {
		return true, true
	}
	if len(other.Mesh.Trail) == 0 { // it would have been the first of its run
		return false, len(c.Mesh.Trail) < trailLimit
	}
	return false, has(other.Mesh.Trail[0])
}

package state

import "slices"

// trailLimit is how many preceding checkpoints a checkpoint names. That many may be
// written by others between two attempts of one write.
const trailLimit = 6

// mark is the prefix of a state_id that is enough to identify a checkpoint within its
// run.
func mark(stateID string) string {
	const length = len("01234567-89ab")
	return stateID[:min(len(stateID), length)]
}

// trail returns the trail of the checkpoint that replaces c.
func (c *Checkpoint) trail() []string {
	if c.Doc.StateID == "" {
		return nil
	}
	trail := append(make([]string, 0, trailLimit), mark(c.Doc.StateID))
	return append(trail, c.Mesh.Trail[:min(len(c.Mesh.Trail), trailLimit-1)]...)
}

// Follows reports whether c was written after other, directly or with further checkpoints
// in between. known is false if c cannot tell: too many are in between, or one was
// written by a release without trails.
//
// So a worker that wrote other without an answer finds out from the run's newest
// checkpoint whether it was stored.
func (c *Checkpoint) Follows(other *Checkpoint) (follows, known bool) {
	has := func(m string) bool { return mark(c.Doc.StateID) == m || slices.Contains(c.Mesh.Trail, m) }
	if has(mark(other.Doc.StateID)) {
		return true, true
	}
	if len(other.Mesh.Trail) == 0 { // other would have been the first of its run
		return false, len(c.Mesh.Trail) < trailLimit
	}
	return false, has(other.Mesh.Trail[0])
}

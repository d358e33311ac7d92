// Package progress reads a team's progress, which package orchestrate stores in the run's
// checkpoint. Programs that only show runs import it instead of orchestrate, which also links the
// languages of conditions.
package progress

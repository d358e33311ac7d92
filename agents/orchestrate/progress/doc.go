// Package progress reads how far a team has come: what package orchestrate stores of its
// work in the run's checkpoint. Programs that only show runs import it in place of
// orchestrate, which brings along the languages of conditions.
package progress

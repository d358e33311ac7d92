// Package scratch makes directories that a command uses for a while, and removes those of
// commands that were killed.
package scratch

// Package scratch makes temporary directories, and removes those of commands that were killed.
package scratch

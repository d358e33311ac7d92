// Package orders is what a worker knows of a command that it has received and verified: which runs
// it names, what its sender is told, and whether it may be noted for a task that has not begun.
//
// How a command changes a run is in package state/run. This package applies nothing, and reads no
// store: it decides by values, and counts the commands that are noted ([Notes]).
package orders

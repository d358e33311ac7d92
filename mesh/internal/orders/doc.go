// Package orders reads a command that a worker has received and verified: which runs it names,
// which answer its sender gets, and whether it may be noted for a task that has not begun.
//
// Package state/run applies a command to a run. This package changes no run and reads no store; it
// only counts the commands that are noted ([Notes]).
package orders

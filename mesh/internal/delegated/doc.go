// Package delegated is what goes along with a task that one agent delegates to another, or calls
// another for: requires.handoff with the chain of links ([Handed]), the Agent State document
// ([Documents]), and what a receiver gets that does not support delegation (relay.go). An agent
// that delegated a live task finds its receiver again ([Passed]).
//
// It decides by values: it has no connection and knows no task but its envelope. It
// signs with a function of its caller, and stores documents in a [state.Store].
package delegated

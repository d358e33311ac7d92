// Package delegated makes and checks what is sent with a delegated task or a call:
// requires.handoff with the chain of links ([Handed]), the Agent State document ([Documents]), and
// the members for a receiver that does not support delegation (relay.go). [Passed] remembers the
// receivers of delegated live tasks.
//
// It needs no connection: it reads a task's envelope, signs with a function of its caller, and
// stores documents in a [state.Store].
package delegated

// Package statetest is the conformance suite of [state.Store]: every store of checkpoints
// must pass it.
//
//	func TestStates(t *testing.T) {
//		statetest.Run(t, func(t *testing.T) state.Store { return open(t) })
//	}
//
// Run it under -race. If a store's connection can be cut, implement [Interrupter], so
// that the suite also tests lost connections.
package statetest

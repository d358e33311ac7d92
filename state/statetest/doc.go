// Package statetest is the conformance suite of [state.Store]: every store of
// checkpoints passes it, the one in memory first.
//
//	func TestStates(t *testing.T) {
//		statetest.Run(t, func(t *testing.T) state.Store { return open(t) })
//	}
//
// Run it under -race. A store whose connection can be cut implements
// [Interrupter] too, and is then held to what the port says about that.
package statetest

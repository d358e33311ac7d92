// Package tooltest supports tests of users and implementations of [tool.Tool]:
// [Fake] is a tool with a scripted behaviour, and [Run] the conformance suite
// that every implementation must pass.
//
//	tooltest.Run(t, func(t *testing.T, b tooltest.Behaviour) tool.Tool {
//		return newAdapter(t, serverThatBehaves(t, b))
//	})
package tooltest
